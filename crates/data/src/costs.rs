//! What one packet costs inside the gateway's programs, as the gateway's own command `bench` says.

use serde::{Deserialize, Serialize};

/// One program, one direction, one packet length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cost {
    /// The program.
    pub program: String,
    /// `v4_to_v6` or `v6_to_v4`.
    pub direction: String,
    /// Protocol above IP, where the gateway tells them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Length of the packet.
    pub packet_octets: u32,
    /// Time of one run.
    pub ns_per_packet: f64,
}

/// The whole answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Costs {
    /// Measured.
    pub rows: Vec<Cost>,
    /// Why there is nothing, when there is nothing.
    pub missing: Option<String>,
}

impl Cost {
    /// Program and protocol.
    fn name(&self) -> String {
        match &self.protocol {
            Some(protocol) => format!("{}, {protocol}", self.program),
            None => self.program.clone(),
        }
    }
}

impl Costs {
    /// No answer, and why.
    pub fn missing(why: impl Into<String>) -> Self {
        Self { rows: Vec::new(), missing: Some(why.into()) }
    }

    /// Rows for people: program and direction, ns for each packet length. The first row is the head.
    pub fn table(&self) -> Vec<Vec<String>> {
        let mut lengths: Vec<u32> = self.rows.iter().map(|r| r.packet_octets).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut head = vec!["program".to_owned(), "direction".to_owned()];
        head.extend(lengths.iter().map(|l| format!("{l} octets, ns")));
        let mut table = vec![head];
        for row in &self.rows {
            let name = row.name();
            let line = table.iter().position(|t| t[0] == name && t[1] == row.direction);
            let line = line.unwrap_or_else(|| {
                let mut new = vec![name, row.direction.clone()];
                new.resize(2 + lengths.len(), "–".into());
                table.push(new);
                table.len() - 1
            });
            if let Some(column) = lengths.iter().position(|l| *l == row.packet_octets) {
                table[line][2 + column] = format!("{:.0}", row.ns_per_packet);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_one_program_and_direction_stand_in_one_row() {
        let text = r#"[
            {"program": "tc", "direction": "v4_to_v6", "packet_octets": 1500, "ns_per_packet": 150.4},
            {"program": "tc", "direction": "v4_to_v6", "packet_octets": 64, "ns_per_packet": 120.0},
            {"program": "xdp", "direction": "v6_to_v4", "protocol": "udp", "packet_octets": 64,
             "ns_per_packet": 60.6}]"#;
        let costs = Costs { rows: serde_json::from_str(text).unwrap(), missing: None };
        let expected = [
            ["program", "direction", "64 octets, ns", "1500 octets, ns"],
            ["tc", "v4_to_v6", "120", "150"],
            ["xdp, udp", "v6_to_v4", "61", "–"],
        ];
        assert_eq!(costs.table(), expected.map(|row| row.map(str::to_owned).to_vec()));
    }
}
