//! The environment as it was passed to `main`.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;

/// The value of a variable.
pub fn get(envp: &[&CStr], name: &str) -> Option<OsString> {
    let value = |variable: &&CStr| {
        let value = variable.to_bytes().strip_prefix(name.as_bytes())?;
        Some(value.strip_prefix(b"=")?.to_vec())
    };
    envp.iter().find_map(value).map(OsString::from_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole() {
        let envp = [c"AB=1", c"A", c"A=", c"A=2"];
        assert_eq!(get(&envp, "A"), Some("".into()));
        assert_eq!(get(&envp, "AB"), Some("1".into()));
        assert_eq!(get(&envp, "B"), None);
    }
}
