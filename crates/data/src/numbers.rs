//! Numbers as people read them.

/// A number with as many digits as it deserves.
pub fn nice(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        0.0 => 0,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_they_deserve() {
        assert_eq!(
            [nice(0.0), nice(0.0234), nice(1.5), nice(15.23), nice(152.3)],
            ["0", "0.0234", "1.50", "15.2", "152"]
        );
    }
}
