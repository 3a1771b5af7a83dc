//! Enumerations whose variants are words for scripts and settings.

/// Declares words with their spelling, so that none can be missing from `ALL`.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $word:ident = $name:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        pub enum $type {
            $($(#[$doc])* #[serde(rename = $name)] $word,)+
        }

        impl $type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$word,)+];

            /// The word in logs, JSON and settings.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$word => $name,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
