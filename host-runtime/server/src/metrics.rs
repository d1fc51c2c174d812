//! Figures for Prometheus, by llama-server's names.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use hexflash::device::MatrixUnit;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::scheduler::news::Outcome;

type Seconds = Counter<f64, AtomicU64>;
type Ratio = Gauge<f64, AtomicU64>;
/// The position of a draft in its block.
type Position = Vec<(&'static str, usize)>;
/// What a gauge that is always 1 says.
type State = Vec<(&'static str, &'static str)>;

/// What was counted since the server began.
pub(crate) struct Metrics {
    registry: Registry,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    prompt_seconds: Seconds,
    predicted_tokens: Counter,
    predicted_seconds: Seconds,
    decodes: Counter,
    longest: Gauge,
    drafted: Counter,
    accepted: Counter,
    rounds: Counter,
    accepted_at: Family<Position, Counter>,
    prompt_speed: Ratio,
    predicted_speed: Ratio,
    processing: Gauge,
    deferred: Gauge,
    busy: Ratio,
    cache_sequences: Gauge,
    cache_bytes: Gauge,
    cache_hits: Counter,
    matrix_unit: Family<State, Gauge>,
    /// Sum over all steps of the texts in each.
    rows: AtomicU64,
    /// What gauges of speeds have shown already.
    shown: Mutex<Shown>,
}

/// Totals at the last look.
#[derive(Default)]
struct Shown {
    prompt: (u64, f64),
    predicted: (u64, f64),
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            prompt_seconds: Seconds::default(),
            predicted_tokens: Counter::default(),
            predicted_seconds: Seconds::default(),
            decodes: Counter::default(),
            longest: Gauge::default(),
            drafted: Counter::default(),
            accepted: Counter::default(),
            rounds: Counter::default(),
            accepted_at: Family::default(),
            prompt_speed: Ratio::default(),
            predicted_speed: Ratio::default(),
            processing: Gauge::default(),
            deferred: Gauge::default(),
            busy: Ratio::default(),
            cache_sequences: Gauge::default(),
            cache_bytes: Gauge::default(),
            cache_hits: Counter::default(),
            matrix_unit: Family::default(),
            rows: AtomicU64::new(0),
            shown: Mutex::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let r = &mut self.registry;
        // The encoder ends sentences and adds `_total` to counters.
        r.register("llamacpp:prompt_tokens", "Prompt tokens that were computed", self.prompt_tokens.clone());
        r.register(
            "llamacpp:prompt_tokens_cached",
            "Prompt tokens that a sequence had already",
            self.cached_tokens.clone(),
        );
        r.register("llamacpp:prompt_seconds", "Time for prompts", self.prompt_seconds.clone());
        r.register("llamacpp:tokens_predicted", "Tokens generated", self.predicted_tokens.clone());
        r.register(
            "llamacpp:tokens_predicted_seconds",
            "Time for generated tokens",
            self.predicted_seconds.clone(),
        );
        r.register("llamacpp:n_decode", "Steps of the model", self.decodes.clone());
        r.register("llamacpp:n_tokens_max", "Most tokens that a text has had", self.longest.clone());
        r.register(
            "llamacpp:spec_decode_num_draft_tokens",
            "Drafts that were verified",
            self.drafted.clone(),
        );
        r.register(
            "llamacpp:spec_decode_num_accepted_tokens",
            "Drafts that were accepted",
            self.accepted.clone(),
        );
        r.register("llamacpp:spec_decode_num_drafts", "Blocks that were verified", self.rounds.clone());
        r.register(
            "llamacpp:spec_decode_num_accepted_tokens_per_pos",
            "Drafts that were accepted, by their position in the block",
            self.accepted_at.clone(),
        );
        r.register(
            "llamacpp:prompt_tokens_seconds",
            "Prompt tokens per second since the last look",
            self.prompt_speed.clone(),
        );
        r.register(
            "llamacpp:predicted_tokens_seconds",
            "Generated tokens per second since the last look",
            self.predicted_speed.clone(),
        );
        r.register("llamacpp:requests_processing", "Texts under way", self.processing.clone());
        r.register("llamacpp:requests_deferred", "Texts that wait for a sequence", self.deferred.clone());
        r.register("llamacpp:n_busy_slots_per_decode", "Texts in a step, on average", self.busy.clone());
        r.register(
            "llamacpp:cache_ram_sequences",
            "Texts in memory of the host, whose sequences were needed by others",
            self.cache_sequences.clone(),
        );
        r.register("llamacpp:cache_ram_bytes", "Bytes that they take", self.cache_bytes.clone());
        r.register(
            "llamacpp:cache_ram_hits",
            "Prompts that went on from one of them",
            self.cache_hits.clone(),
        );
        r.register(
            "llamacpp:matrix_unit",
            "What there is of the device's matrix unit (HMX), and whether it passed its test",
            self.matrix_unit.clone(),
        );
    }

    /// What the device says of its matrix unit.
    pub(crate) fn tell_matrix_unit(&self, unit: MatrixUnit) {
        self.matrix_unit.get_or_create(&vec![("state", unit.name())]).set(1);
    }

    /// There were `steps` of the model with so many texts in them.
    pub(crate) fn stepped(&self, steps: u64, texts: usize) {
        self.decodes.inc_by(steps);
        // Relaxed: the sum publishes nothing.
        self.rows.fetch_add(steps * texts as u64, Ordering::Relaxed);
    }

    /// A text has ended.
    pub(crate) fn finished(&self, outcome: &Outcome) {
        let stats = &outcome.times.stats;
        self.prompt_tokens.inc_by(stats.prompt_tokens as u64);
        self.cached_tokens.inc_by(outcome.times.cached as u64);
        self.prompt_seconds.inc_by(stats.prompt_seconds);
        self.predicted_tokens.inc_by(stats.generated_tokens as u64);
        self.predicted_seconds.inc_by(stats.generated_seconds);
        self.longest.set(self.longest.get().max(stats.context_tokens.into()));
        if let Some(drafts) = &stats.speculation {
            self.drafted.inc_by(drafts.drafted as u64);
            self.accepted.inc_by(drafts.accepted as u64);
            self.rounds.inc_by(drafts.rounds as u64);
            for (position, &n) in drafts.accepted_at.iter().enumerate() {
                self.accepted_at.get_or_create(&vec![("position", position)]).inc_by(n as u64);
            }
        }
    }

    /// So many texts are in memory of the host, and take so many bytes.
    pub(crate) fn cache_has(&self, texts: usize, bytes: usize) {
        self.cache_sequences.set(texts as i64);
        self.cache_bytes.set(bytes as i64);
    }

    /// A prompt goes on from one of them.
    pub(crate) fn cache_hit(&self) {
        self.cache_hits.inc();
    }

    /// All figures as text, where `processing` texts are under way and `deferred` wait.
    pub(crate) fn text(&self, processing: usize, deferred: usize) -> String {
        self.processing.set(processing as i64);
        self.deferred.set(deferred as i64);
        let decodes = self.decodes.get();
        self.busy.set(self.rows.load(Ordering::Relaxed) as f64 / decodes.max(1) as f64);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let Shown { prompt, predicted } = &mut *shown;
        for (tokens, seconds, speed, last) in [
            (&self.prompt_tokens, &self.prompt_seconds, &self.prompt_speed, prompt),
            (&self.predicted_tokens, &self.predicted_seconds, &self.predicted_speed, predicted),
        ] {
            let now = (tokens.get(), seconds.get());
            let time = now.1 - last.1;
            speed.set(if time > 0.0 { (now.0 - last.0) as f64 / time } else { 0.0 });
            *last = now;
        }
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &self.registry) {
            tracing::error!("the figures cannot be written: {error}");
        }
        plain(&text)
    }
}

/// Prometheus' plain text of what is in OpenMetrics' form: there, counters are described without the end of
/// their name.
fn plain(open: &str) -> String {
    let names = open.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"));
    let counters: HashSet<&str> = names.collect();
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|&line| line != "# EOF") {
        let described = line.strip_prefix("# ").and_then(|rest| {
            let mut words = rest.splitn(3, ' ');
            Some((words.next()?, words.next()?, words.next()?))
        });
        match described {
            Some((kind, name, rest)) if counters.contains(name) => {
                text.push_str(&format!("# {kind} {name}_total {rest}\n"));
            }
            _ => text.extend([line, "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_described_by_the_names_that_they_have() {
        let open =
            "# HELP a Words.\n# TYPE a counter\na_total 3\n# HELP b More.\n# TYPE b gauge\nb 1.5\n# EOF\n";
        let text = "# HELP a_total Words.\n# TYPE a_total counter\na_total 3\n\
                    # HELP b More.\n# TYPE b gauge\nb 1.5\n";
        assert_eq!(plain(open), text);
    }
}
