//! JSON Schema of what goes over the socket.

use schemars::{JsonSchema, schema_for};
use serde_json::Value;

use crate::message::Versioned;
use crate::{Reply, Request};

/// A line on the control socket: a request or a reply.
#[derive(JsonSchema)]
#[schemars(untagged, title = "Fordway's control socket")]
#[expect(dead_code, reason = "only its schema is used")]
enum Line {
    /// What a client sends.
    Request(Versioned<Request>),
    /// What the daemon sends.
    Reply(Versioned<Reply>),
}

/// The JSON Schema of a line on the socket.
#[must_use]
pub fn schema() -> Value {
    schema_for!(Line).to_value()
}

#[cfg(test)]
mod tests {
    use boon::{Compiler, Schemas};

    use super::*;
    use crate::{
        ClusterChange, ClusterPhase, ClusterState, ClusterStats, ClusterStatus, GatewayRow,
        GatewayState, ShardRole, ShardRow, Stats, TrtStats, from_line, to_line,
    };

    /// What `message` is for the schema, once it has been on the socket.
    fn check(line: &[u8]) -> Result<(), String> {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource("control.json", schema()).unwrap();
        let index = compiler.compile("control.json", &mut schemas).unwrap();
        let value = serde_json::from_slice(line).unwrap();
        schemas.validate(&value, index).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn requests_and_replies_are_as_the_schema_says() {
        let trt = vec![TrtStats { name: "trt".to_owned(), ..TrtStats::default() }];
        let stats = Stats { trt, ..Stats::default() };
        let state = ClusterState {
            name: "gw-a".to_owned(),
            phase: ClusterPhase::NameInUse,
            store_error: Some("no server is connected".to_owned()),
            ..ClusterState::default()
        };
        let cluster = ClusterStatus {
            stats: ClusterStats { state, ..ClusterStats::default() },
            gateways: vec![GatewayRow { state: GatewayState::Draining, ..GatewayRow::default() }],
            shards: vec![ShardRow { role: ShardRole::Moving, ..ShardRow::default() }],
        };
        let replies = [
            Reply::Cluster(Box::new(cluster)),
            Reply::Done("done".to_owned()),
            Reply::Failed { text: "no".to_owned(), hint: None, config: false },
            Reply::Stats(Box::new(stats)),
        ];
        for reply in replies {
            let line = to_line(&reply).unwrap();
            check(&line).unwrap();
            assert_eq!(from_line::<Reply>(&line).unwrap(), reply);
        }
        for request in [
            Request::Down { name: "nat64".to_owned() },
            Request::Cluster {},
            Request::ClusterChange { change: ClusterChange::Leave },
            Request::ClusterChange { change: ClusterChange::Move { shard: 7, gateway: None } },
        ] {
            let line = to_line(&request).unwrap();
            check(&line).unwrap();
            assert_eq!(from_line::<Request>(&line).unwrap(), request);
        }
        for wrong in ["{}", "{\"command\":\"dance\"}", "{\"protocol_version\":1,\"stats\":7}"] {
            assert!(check(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_of_the_cluster_are_those_of_the_protocol() {
        for phase in ClusterPhase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.word());
        }
        for state in [
            GatewayState::Active,
            GatewayState::Draining,
            GatewayState::Ended,
            GatewayState::Unknown,
        ] {
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
    }

    #[test]
    fn a_request_without_a_version_is_understood_and_one_of_another_is_not() {
        let understood = from_line::<Request>(b"{\"command\":\"status\"}\n").unwrap();
        assert_eq!(understood, Request::Status {});
        let other =
            from_line::<Request>(b"{\"protocol_version\":2,\"ask\":\"status\"}\n").unwrap_err();
        assert_eq!(other.to_string(), "protocol 2 is not known here, only protocol 1");
        let unknown = "{\"command\":\"status\",\"colour\":1}";
        assert!(from_line::<Request>(unknown.as_bytes()).is_err());
    }
}
