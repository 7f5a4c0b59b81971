//! Makes counters, gauges and histograms, and writes them down for Prometheus.
//!
//! Every handle is made once, at the start, with its labels: to count is then one atomic operation, with no look-up and
//! no text. Each part of the service has its own struct of handles beside its code. There is no global recorder, so that
//! several services live in one process. Without an admin listener nothing is measured at all.

use std::sync::Arc;

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder, SharedString,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};

/// Round trips to Postgres and to the provider, up to the longest time-out.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
/// From a charge that nothing goes wrong with to one that waited a day for its customer.
const CERTAINTY: &[f64] = &[
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0,
];
/// Up to the largest batch that the defaults allow.
const ITEMS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Label and value pairs.
pub type Labels<'a> = &'a [(&'static str, &'static str)];

/// Where handles come from. Cheap to clone.
#[derive(Clone)]
pub struct Meters(Option<Arc<PrometheusRecorder>>);

impl Meters {
    pub fn new() -> Self {
        let buckets = [
            (
                Matcher::Full("payonce_certainty_seconds".to_owned()),
                CERTAINTY,
            ),
            (Matcher::Suffix("_seconds".to_owned()), SECONDS),
            (Matcher::Suffix("_batch_size".to_owned()), ITEMS),
        ];
        let builder =
            buckets
                .into_iter()
                .fold(PrometheusBuilder::new(), |builder, (matcher, buckets)| {
                    builder
                        .set_buckets_for_metric(matcher, buckets)
                        .expect("no list of buckets is empty")
                });
        Self(Some(Arc::new(builder.build_recorder())))
    }

    /// Measures nothing: its handles lead nowhere.
    pub fn none() -> Self {
        Self(None)
    }

    pub fn counter(&self, name: &'static str, help: &'static str, labels: Labels<'_>) -> Counter {
        self.0.as_ref().map_or_else(Counter::noop, |recorder| {
            recorder.describe_counter(KeyName::from_const_str(name), None, text(help));
            recorder.register_counter(&key(name, labels), &METADATA)
        })
    }

    pub fn gauge(&self, name: &'static str, help: &'static str, labels: Labels<'_>) -> Gauge {
        self.0.as_ref().map_or_else(Gauge::noop, |recorder| {
            recorder.describe_gauge(KeyName::from_const_str(name), None, text(help));
            recorder.register_gauge(&key(name, labels), &METADATA)
        })
    }

    /// A gauge whose label's value is known only to the configuration.
    pub fn gauge_of(
        &self,
        name: &'static str,
        help: &'static str,
        label: Option<(&'static str, String)>,
    ) -> Gauge {
        self.0.as_ref().map_or_else(Gauge::noop, |recorder| {
            recorder.describe_gauge(KeyName::from_const_str(name), None, text(help));
            let labels: Vec<Label> = label
                .into_iter()
                .map(|(label, value)| Label::new(label, value))
                .collect();
            recorder.register_gauge(&Key::from_parts(name, labels), &METADATA)
        })
    }

    /// Of seconds or of a batch's items, as its name ends.
    pub fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        labels: Labels<'_>,
    ) -> Histogram {
        self.0.as_ref().map_or_else(Histogram::noop, |recorder| {
            recorder.describe_histogram(KeyName::from_const_str(name), None, text(help));
            recorder.register_histogram(&key(name, labels), &METADATA)
        })
    }

    /// Everything, in Prometheus' text format 0.0.4.
    pub fn render(&self) -> String {
        self.0
            .as_ref()
            .map_or_else(String::new, |recorder| recorder.handle().render())
    }

    /// Sorts what histograms were given into their buckets. To be called every few seconds: until then each value is
    /// kept by itself, and nobody need ever scrape.
    pub fn upkeep(&self) {
        if let Some(recorder) = &self.0 {
            recorder.handle().run_upkeep();
        }
    }
}

impl Default for Meters {
    fn default() -> Self {
        Self::new()
    }
}

const METADATA: Metadata<'static> = Metadata::new("payonce", Level::INFO, None);

fn text(help: &'static str) -> SharedString {
    SharedString::const_str(help)
}

fn key(name: &'static str, labels: Labels<'_>) -> Key {
    let labels: Vec<Label> = labels
        .iter()
        .map(|(label, value)| Label::from_static_parts(label, value))
        .collect();
    Key::from_parts(name, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_written_with_its_help_and_its_labels() {
        let meters = Meters::new();
        let calls = meters.counter("payonce_calls_total", "Calls made.", &[("phase", "read")]);
        calls.increment(2);
        meters
            .histogram("payonce_call_seconds", "How long.", &[])
            .record(0.003);
        meters.upkeep();
        let text = meters.render();
        for line in [
            "# HELP payonce_calls_total Calls made.",
            "# TYPE payonce_calls_total counter",
            "payonce_calls_total{phase=\"read\"} 2",
            "payonce_call_seconds_bucket{le=\"0.0025\"} 0",
            "payonce_call_seconds_bucket{le=\"0.005\"} 1",
            "payonce_call_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
    }

    #[test]
    fn meters_do_not_meet_and_none_measure_nothing() {
        let (one, other, none) = (Meters::new(), Meters::new(), Meters::none());
        for meters in [&one, &none] {
            meters
                .counter("payonce_calls_total", "Calls made.", &[])
                .increment(1);
        }
        assert!(one.render().contains("payonce_calls_total 1"));
        assert_eq!(other.render(), "");
        assert_eq!(none.render(), "");
    }
}
