//! Prometheus' text format, read as strictly as its own parser and linter do.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

/// Metrics: the value of each sample, by its name and labels as they are written.
#[derive(Debug)]
pub struct Metrics {
    samples: BTreeMap<String, f64>,
}

/// The family whose lines are read.
struct Family {
    name: String,
    kind: Option<String>,
}

impl Metrics {
    /// Reads a page.
    pub fn parse(page: &str) -> Result<Self> {
        ensure!(page.ends_with('\n'), "the last line has no end");
        let (mut samples, mut seen) = (BTreeMap::new(), BTreeSet::new());
        let mut family: Option<Family> = None;
        for line in page.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, text) = help.split_once(' ').context("no text")?;
                ensure!(!text.is_empty() && is_name(name), "{line}");
                ensure!(seen.insert(name.to_owned()), "{name} comes twice");
                family = Some(Family {
                    name: name.to_owned(),
                    kind: None,
                });
                continue;
            }
            let family = family.as_mut().with_context(|| line.to_owned())?;
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                family.set(kind)?;
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').context("no value")?;
            family.owns(sample)?;
            let value: f64 = value.parse().with_context(|| line.to_owned())?;
            let twice = samples.insert(sample.to_owned(), value);
            ensure!(twice.is_none(), "{sample} comes twice");
        }
        let metrics = Self { samples };
        metrics.histograms_are_whole()?;
        Ok(metrics)
    }

    /// The value of a sample, such as `stasis_leftovers{what="memory"}`.
    pub fn value(&self, sample: &str) -> Option<f64> {
        self.samples.get(sample).copied()
    }

    /// The sample of this name that has all these labels; `None` if not just one has.
    pub fn with(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels: Vec<String> = labels
            .iter()
            .map(|(label, value)| format!("{label}=\"{value}\""))
            .collect();
        let is_it = |sample: &str| {
            let rest = sample.strip_prefix(name);
            let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('{'));
            rest.is_some_and(|rest| labels.iter().all(|label| rest.contains(label)))
        };
        let mut found = self.samples.iter().filter(|(sample, _)| is_it(sample));
        let (_, value) = found.next()?;
        found.next().is_none().then_some(*value)
    }

    /// Checks that buckets rise, and that the last one has all.
    fn histograms_are_whole(&self) -> Result<()> {
        for (sample, all) in &self.samples {
            let Some((name, labels)) = sample.split_once("_bucket{") else {
                continue;
            };
            let Some((labels, _)) = labels.split_once("le=\"+Inf\"") else {
                continue;
            };
            let before = format!("{name}_bucket{{{labels}le=");
            let of_it = self.samples.iter();
            let mut of_it: Vec<(f64, f64)> = of_it
                .filter_map(|(sample, count)| {
                    let bound = sample.strip_prefix(&before)?.trim_matches(['"', '}']);
                    Some((bound.parse().ok()?, *count))
                })
                .collect();
            of_it.sort_by(|one, other| one.0.total_cmp(&other.0));
            ensure!(of_it.len() > 1, "{sample} is alone");
            ensure!(
                of_it.is_sorted_by_key(|(_, count)| *count),
                "{sample}: {of_it:?}"
            );
            let labels = labels.trim_end_matches(',');
            for other in ["_count", "_sum"] {
                let other = format!("{name}{other}{{{labels}}}");
                let value = self.value(&other).context(other.clone())?;
                ensure!(
                    !other.contains("_count") || value == *all,
                    "{other}: {value}"
                );
            }
        }
        Ok(())
    }
}

impl Family {
    fn set(&mut self, line: &str) -> Result<()> {
        let (name, kind) = line.split_once(' ').context("no type")?;
        ensure!(name == self.name && self.kind.is_none(), "TYPE {line}");
        ensure!(
            ["counter", "gauge", "histogram"].contains(&kind),
            "TYPE {line}"
        );
        let is_total = name.ends_with("_total");
        ensure!(is_total == (kind == "counter"), "{name} is a {kind}");
        self.kind = Some(kind.to_owned());
        Ok(())
    }

    /// Checks that samples stand below their family, with labels that can be read.
    fn owns(&self, sample: &str) -> Result<()> {
        let kind = self.kind.as_deref().context("no TYPE")?;
        let (name, labels) = match sample.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').context("no }")?),
            None => (sample, ""),
        };
        let suffix = name.strip_prefix(&self.name).context(sample.to_owned())?;
        let allowed: &[&str] = match kind {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        ensure!(allowed.contains(&suffix), "{sample} is of no {kind}");
        labels_of(labels).with_context(|| sample.to_owned())
    }
}

fn labels_of(mut text: &str) -> Result<()> {
    let mut seen = BTreeSet::new();
    while !text.is_empty() {
        let (label, value) = text.split_once("=\"").context("no value")?;
        ensure!(is_name(label) && !label.contains(':'), "the label {label}");
        ensure!(seen.insert(label), "{label} comes twice");
        let mut characters = value.char_indices();
        let end = loop {
            match characters.next().context("no end")? {
                (_, '\\') => {
                    let (_, escaped) = characters.next().context("no end")?;
                    ensure!(['\\', '"', 'n'].contains(&escaped), "\\{escaped}");
                }
                (end, '"') => break end,
                _ => {}
            }
        };
        text = match value[end + 1..].strip_prefix(',') {
            Some(rest) => rest,
            None if value.len() == end + 1 => "",
            None => bail!("{value}"),
        };
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let all = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
    !name.is_empty() && name.chars().all(all) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# HELP a_total x\n# TYPE a_total counter\n";

    #[test]
    fn what_prometheus_reads_is_read() {
        let page = format!(
            "{HEAD}a_total{{b=\"c\\\"}}\",d=\"e,f\"}} 1\n# HELP h x\n# TYPE h histogram\n\
             h_bucket{{le=\"2\"}} 1\nh_bucket{{le=\"10\"}} 2\nh_bucket{{le=\"+Inf\"}} 2\n\
             h_sum{{}} 9\nh_count{{}} 2\n"
        );
        let metrics = Metrics::parse(&page).unwrap();
        assert_eq!(metrics.with("a_total", &[("d", "e,f")]), Some(1.0));
        assert_eq!(metrics.with("a", &[]), None);
        assert_eq!(metrics.value("h_sum{}"), Some(9.0));
    }

    #[test]
    fn what_it_refuses_is_refused() {
        for wrong in [
            "a_total 1\n".to_owned(),
            format!("{HEAD}a_total 1"),
            format!("{HEAD}a_total 1\na_total 2\n"),
            format!("{HEAD}a_total x\n"),
            format!("{HEAD}b_total 1\n"),
            format!("{HEAD}a_total{{b=\"c}} 1\n"),
            format!("{HEAD}a_total{{b=\"\\x\"}} 1\n"),
            format!("{HEAD}a_total{{b=\"c\",b=\"d\"}} 1\n"),
            format!("{HEAD}{HEAD}"),
            "# HELP a x\n# TYPE a counter\n".to_owned(),
            "# HELP h x\n# TYPE h histogram\nh_bucket{le=\"2\"} 3\nh_bucket{le=\"+Inf\"} 2\n\
             h_sum{} 9\nh_count{} 2\n"
                .to_owned(),
        ] {
            assert!(Metrics::parse(&wrong).is_err(), "{wrong}");
        }
    }
}
