//! Versions of NVIDIA's driver, "580.159.04", in order.

use std::fmt;

/// A version: branch, then release, then patch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverVersion(Vec<u32>);

impl DriverVersion {
    /// Parses a version as NVML returns it, and ignores any text after the numbers; `None` if the
    /// text does not begin with a number.
    pub fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        let numbers = text[..end.unwrap_or(text.len())].split('.');
        let numbers: Vec<u32> = numbers
            .map_while(|number| number.parse().ok())
            .take(4)
            .collect();
        (!numbers.is_empty()).then_some(Self(numbers))
    }

    /// The driver branch, e.g. 580.
    pub fn branch(&self) -> u32 {
        self.0.first().copied().unwrap_or(0)
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> DriverVersion {
        DriverVersion::parse(text).unwrap()
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        assert!(version("580.95.05") < version("580.105.08"));
        assert!(version("580.95") < version("580.95.05"));
        assert!(version("570.211.01") < version("580.65.06"));
        assert_eq!(version("580.95.05"), version("580.95.5"));
        assert_eq!(version("580.0.0-standin").branch(), 580);
    }

    #[test]
    fn what_is_no_version_is_none() {
        assert_eq!(DriverVersion::parse(""), None);
        assert_eq!(DriverVersion::parse("R580"), None);
        assert_eq!(DriverVersion::parse("99999999999"), None);
        assert_eq!(version("580..1"), version("580"));
    }
}
