//! What the ledger has of a run, what it lacks, and what goes there.

use fordway_data::plan::{self, Deployment};
use fordway_data::spec::{Load, MechanismSpec, Metric, Point};
use fordway_data::trial::{Condition, KeyParts, Trial, key};

use super::Runner;
use crate::error::{LabError, Result};
use crate::trials;

/// Notes an error as the mechanism's failure, or as the workbench's own.
pub(super) fn blame(error: &LabError, trial: &mut Trial) {
    let whose = if error.is_the_mechanisms() { &mut trial.failed } else { &mut trial.invalid };
    whose.push(error.to_string());
}

impl Runner {
    pub(super) fn key(
        &self,
        mechanism: &str,
        condition: &Condition,
        block: u32,
        metric: Metric,
        point: Option<&Point>,
    ) -> String {
        key(KeyParts {
            spec_hash: &self.spec_hash,
            mechanism,
            version: self.version(mechanism),
            condition,
            block,
            seed: self.run.seed,
            metric,
            point,
        })
    }

    /// Whether a valid trial has it.
    pub(super) fn is_done(&self, d: &Deployment, metric: Metric, point: Option<&Point>) -> bool {
        self.done.contains(&self.key(&d.mechanism, &d.condition, d.block, metric, point))
    }

    /// Points of a metric.
    pub(super) fn points(&self, metric: Metric) -> Vec<Option<Point>> {
        metric.load().map_or_else(|| vec![None], |load| plan::points(load, self.profile()))
    }

    /// The loads of these metrics, each at all of its points, in the order of the deployment.
    pub(super) fn in_order(
        &self,
        d: &Deployment,
        metrics: &[Metric],
    ) -> Vec<(Load, Option<Point>)> {
        let at = |load| plan::points(load, self.profile()).into_iter().map(move |p| (load, p));
        let all = super::loads(metrics).into_iter().flat_map(at).collect();
        plan::order_of_loads(self.run.seed, d, all)
    }

    /// Trials, one for each of its points, of a metric that has no value because of an error.
    pub(super) fn without(
        &self,
        d: &Deployment,
        arm: &MechanismSpec,
        metric: Metric,
        error: &LabError,
    ) -> Vec<Trial> {
        let of = |point: Option<Point>| {
            let mut trial = self.blank(d, Some(arm), metric);
            trial.key = self.key(&d.mechanism, &d.condition, d.block, metric, point.as_ref());
            trial.point = point;
            blame(error, &mut trial);
            trial
        };
        self.points(metric).into_iter().map(of).collect()
    }

    /// Metrics of a deployment that no valid trial has yet, at one of their points at least.
    pub(super) fn wanted(&self, d: &Deployment) -> Vec<Metric> {
        let all = match self.experiment.mechanism(&d.mechanism) {
            Ok(arm) => plan::metrics_of(&self.experiment, &self.run.unmeasured, arm),
            Err(_) => plan::calibrated(&self.experiment, &self.run, &d.mechanism),
        };
        all.into_iter()
            .filter(|m| self.points(*m).iter().any(|point| !self.is_done(d, *m, point.as_ref())))
            .collect()
    }

    pub(super) fn blank(
        &self,
        d: &Deployment,
        arm: Option<&MechanismSpec>,
        metric: Metric,
    ) -> Trial {
        let implementation = arm.map_or("none", |a| &a.implementation);
        Trial {
            key: self.key(&d.mechanism, &d.condition, d.block, metric, None),
            experiment: self.experiment.name.clone(),
            seed: self.run.seed,
            block: d.block,
            order: d.order,
            condition: d.condition.clone(),
            mechanism: d.mechanism.clone(),
            implementation: implementation.to_owned(),
            version: self.version(&d.mechanism).to_owned(),
            started: crate::host::now(),
            ..Trial::blank(metric)
        }
    }

    pub(super) fn record(&mut self, mut trial: Trial) -> Result<()> {
        if let Some(pair) = self.backend.pair() {
            // What a host that is gone no longer answered must not look like a mechanism's fault.
            match pair.answers() {
                Err(error) if error.is_lost_host() => trial.invalid.push(error.to_string()),
                other => other?,
            }
        }
        trials::judge(&mut trial, &fordway_data::spec::rules(&self.experiment.exclusions));
        self.ledger.append(&trial)?;
        if trial.valid {
            self.done.insert(trial.key);
        }
        Ok(())
    }
}
