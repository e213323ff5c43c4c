//! How much memory this process may have: the machine's, or what its control groups leave of it.
//!
//! A group's limit holds for all groups below it, so the least on the way up counts. Version 2 has one tree of groups,
//! version 1 one for memory alone; a machine may have both mounted.

use std::fs;
use std::path::{Path, PathBuf};

/// A tree of groups.
struct Tree {
    /// How its mount is told: the type of file system, and the option that must be there.
    kind: &'static str,
    option: Option<&'static str>,
    /// The controllers in its line of `/proc/self/cgroup`.
    controller: &'static str,
    files: &'static [&'static str],
}

const TREES: [Tree; 2] = [
    Tree {
        kind: "cgroup2",
        option: None,
        controller: "",
        // Beyond `high` processes aren't killed, but held up until they stand still.
        files: &["memory.max", "memory.high"],
    },
    Tree {
        kind: "cgroup",
        option: Some("memory"),
        controller: "memory",
        files: &["memory.limit_in_bytes"],
    },
];

/// Bytes that this process and those around it may use.
pub fn memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib << 10)
    });
    let [groups, mounts] = ["/proc/self/cgroup", "/proc/self/mountinfo"]
        .map(|path| fs::read_to_string(path).unwrap_or_default());
    machine
        .into_iter()
        .chain(least(&groups, &mounts, Path::new("/")))
        .min()
}

/// The least limit of the process's groups. `root` is what mount points are below.
fn least(groups: &str, mounts: &str, root: &Path) -> Option<u64> {
    let folders = TREES.iter().flat_map(|tree| {
        let found = tree
            .group(groups)
            .and_then(|group| tree.place(mounts, group));
        let (mount, below) = found.unwrap_or_default();
        let (mount, files) = (root.join(mount.trim_start_matches('/')), tree.files);
        let all = mount.join(below.trim_start_matches('/'));
        let way = all.ancestors().map(PathBuf::from).collect::<Vec<_>>();
        // Up to the mount itself: what is above isn't shown here.
        way.into_iter()
            .take_while(move |folder| !below.is_empty() && folder.starts_with(&mount))
            .flat_map(move |folder| files.iter().map(move |file| folder.join(file)))
    });
    folders
        .filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok())
        .min()
}

impl Tree {
    /// The process's group in this tree.
    fn group<'a>(&self, groups: &'a str) -> Option<&'a str> {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, group) = rest.split_once(':')?;
            let ours = controllers.split(',').any(|name| name == self.controller);
            ours.then_some(group)
        })
    }

    /// Where this tree is mounted, and the group's path below that.
    fn place<'a>(&self, mounts: &'a str, group: &str) -> Option<(&'a str, String)> {
        mounts.lines().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            if kind.next() != Some(self.kind) {
                return None;
            }
            let options = kind.nth(1).unwrap_or("");
            if !self
                .option
                .is_none_or(|option| options.split(',').any(|o| o == option))
            {
                return None;
            }
            let mut place = place.split(' ').skip(3);
            let (top, mount) = (place.next()?, place.next()?);
            // In a container the mount begins at the container's own group; a group outside of it can't be seen,
            // but the mount's top is above it.
            let below = match top {
                "/" => group,
                top => group.strip_prefix(top).unwrap_or("/"),
            };
            Some((mount, format!("/{}", below.trim_start_matches('/'))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of files, and its removal.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str, files: &[(&str, &str)]) -> Files {
            let root =
                std::env::temp_dir().join(format!("clew-limits-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Files(root)
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const UNIFIED: &str =
        "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_least_on_the_way_up_counts() {
        let files = Files::new(
            "unified",
            &[
                ("sys/fs/cgroup/a/memory.max", "3000000\n"),
                ("sys/fs/cgroup/a/memory.high", "max\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/b/memory.high", "4000000\n"),
                ("sys/fs/cgroup/other/memory.max", "5\n"),
            ],
        );
        assert_eq!(least("0::/a/b\n", UNIFIED, &files.0), Some(3_000_000));
        assert_eq!(least("0::/a/b/gone\n", UNIFIED, &files.0), Some(3_000_000));
        assert_eq!(least("0::/\n", UNIFIED, &files.0), None);
        assert_eq!(least("", UNIFIED, &files.0), None);
        assert_eq!(least("0::/a/b\n", "", &files.0), None);
    }

    #[test]
    fn the_older_tree_counts_too() {
        let mounts = format!(
            "{}35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
            UNIFIED.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified ")
        );
        let files = Files::new(
            "older",
            &[
                (
                    "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes",
                    "700000\n",
                ),
                (
                    "sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "9223372036854771712\n",
                ),
                ("sys/fs/cgroup/unified/jobs/memory.max", "800000\n"),
                ("sys/fs/cgroup/cpu/jobs/memory.limit_in_bytes", "1\n"),
            ],
        );
        let groups = "9:name=systemd:/\n5:memory:/jobs\n1:cpu,cpuacct:/jobs\n0::/jobs\n";
        assert_eq!(least(groups, &mounts, &files.0), Some(700_000));
        let unlimited = "5:memory:/\n0::/jobs\n";
        assert_eq!(least(unlimited, &mounts, &files.0), Some(800_000));
    }

    #[test]
    fn a_container_sees_its_own_part_of_the_tree() {
        let mounts = "41 31 0:38 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let files = Files::new(
            "container",
            &[
                ("sys/fs/cgroup/memory.max", "900000\n"),
                ("sys/fs/cgroup/in/memory.max", "1000\n"),
                ("memory.max", "1\n"),
            ],
        );
        assert_eq!(least("0::/docker/x\n", mounts, &files.0), Some(900_000));
        assert_eq!(least("0::/docker/x/in\n", mounts, &files.0), Some(1000));
        assert_eq!(least("0::/../y\n", mounts, &files.0), Some(900_000));
    }

    #[test]
    fn this_process_may_have_some() {
        assert!(memory().unwrap() > 1 << 20);
    }
}
