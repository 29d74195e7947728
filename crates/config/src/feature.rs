//! Parts that are cargo features, which a build may leave out.
//!
//! [`Config`](crate::Config) has the same type in every build. What a build leaves out it refuses to read, and the
//! reference, the JSON Schema and the short forms do not have it.

/// A part that is a cargo feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Mode `nat-pt` (RFC 2766).
    NatPt,
    /// `[dstm_server]`, `[dstm_tep]`, `[[dstm_client]]`.
    Dstm,
    /// Mode `nat44`.
    Nat44,
    /// `[cluster]`.
    Cluster,
}

impl Feature {
    /// All that there are.
    pub const ALL: [Feature; 4] = [Feature::NatPt, Feature::Dstm, Feature::Nat44, Feature::Cluster];

    /// Its name in `Cargo.toml`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Feature::NatPt => "nat-pt",
            Feature::Dstm => "dstm",
            Feature::Nat44 => "nat44",
            Feature::Cluster => "cluster",
        }
    }

    /// Whether this build has it.
    #[must_use]
    pub const fn is_built_in(self) -> bool {
        match self {
            Feature::NatPt => cfg!(feature = "nat-pt"),
            Feature::Dstm => cfg!(feature = "dstm"),
            Feature::Nat44 => cfg!(feature = "nat44"),
            Feature::Cluster => cfg!(feature = "cluster"),
        }
    }

    /// The names of those that this build has.
    pub fn built_in() -> impl Iterator<Item = &'static str> {
        Feature::ALL.into_iter().filter(|feature| feature.is_built_in()).map(Feature::name)
    }

    /// What is wrong where it is asked for and left out.
    #[must_use]
    pub fn refusal(self) -> String {
        format!("this program was built without {}", self.name())
    }

    /// What to do where it is asked for and left out.
    #[must_use]
    pub fn help(self) -> String {
        format!("leave it out, or build fordway with the cargo feature {}", self.name())
    }
}

/// What a section of the reference needs and this build does not have.
pub(crate) fn left_out(section: &str) -> Option<Feature> {
    let feature = match section {
        "translator.nat-pt" => Feature::NatPt,
        _ if section.starts_with("dstm_") => Feature::Dstm,
        _ if section.starts_with("translator.nat44") => Feature::Nat44,
        "cluster" | "cluster.gateway" | "cluster.store" => Feature::Cluster,
        _ => return None,
    };
    (!feature.is_built_in()).then_some(feature)
}
