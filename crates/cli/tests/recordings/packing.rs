//! Packing and unpacking by the command.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::synthetic::Place;

#[test]
fn a_recording_travels_in_one_file() {
    let place = Place::new("pack");
    let folder = place.recording("crash", 1).simple(3);
    let said = place.good(&["pack", "crash"]);
    assert!(said.starts_with("packed: crash.clew, "), "{said}");
    assert!(place.bad(1, &["pack", "crash"]).contains("exists"));
    place.good(&["pack", "crash", "-o", "again.clew"]);
    let bytes = |name: &str| fs::read(place.0.join(name)).unwrap();
    assert_eq!(bytes("crash.clew"), bytes("again.clew"));

    assert!(place.bad(1, &["unpack", "crash.clew"]).contains("already"));
    let said = place.good(&["unpack", "crash.clew", "-n", "theirs"]);
    assert!(said.starts_with("unpacked: theirs, "), "{said}");
    let mode = place
        .dir()
        .join("theirs")
        .metadata()
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    let dumped = |name: &str| place.good(&["dump", name]);
    assert_eq!(dumped("crash"), dumped("theirs"));
    fs::remove_dir_all(&folder).unwrap();
    place.good(&["unpack", "crash.clew"]);
    // It is the latest now.
    assert!(place.good(&["info"]).contains("recording   crash"));
    assert!(place.good(&["ls"]).lines().count() == 3);
    // Nothing else was left anywhere.
    let left: Vec<String> = fs::read_dir(place.dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !["crash", "theirs", "latest"].contains(&name.as_str()))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_is_wrong_with_a_pack_is_told_and_leaves_nothing() {
    let place = Place::new("unpack");
    let refused = |args: &[&str], words: &str| {
        let said = place.bad(1, args);
        assert!(said.contains(words), "{words}: {said}");
        let left = fs::read_dir(place.dir()).map_or(0, |entries| entries.count());
        assert_eq!(left, 0, "{args:?}");
    };
    refused(&["unpack", "none.clew"], "No such file");
    fs::write(place.0.join("text.clew"), "no archive").unwrap();
    refused(&["unpack", "text.clew"], "damaged");
    refused(&["unpack", "/dev/null"], "neither a file");
    place.recording("a", 1).simple(0);
    place.good(&["pack", "a"]);
    place.good(&["rm", "a"]);
    refused(
        &["unpack", "--limit", "100", "a.clew"],
        "unpacks to more than 100",
    );
    refused(&["unpack", "-n", "../out", "a.clew"], "can't be the name");
    let whole = fs::read(place.0.join("a.clew")).unwrap();
    fs::write(place.0.join("cut.clew"), &whole[..whole.len() / 2]).unwrap();
    refused(&["unpack", "cut.clew"], "damaged");
    // By its path it isn't a recording.
    assert!(
        place
            .bad(1, &["info", "./a.clew"])
            .contains("first: clew unpack")
    );
}

#[test]
fn a_name_from_a_stranger_is_checked() {
    let place = Place::new("stranger");
    let folder = place.recording("a", 1).simple(0);
    let meta = fs::read_to_string(folder.join("meta.json")).unwrap();
    let evil = meta.replace("\"name\": \"a\"", "\"name\": \"../../evil\"");
    fs::write(folder.join("meta.json"), evil).unwrap();
    place.good(&["pack", "a"]);
    let said = place.bad(1, &["unpack", "a.clew"]);
    assert!(said.contains("choose a name with -n"), "{said}");
    place.good(&["unpack", "a.clew", "-n", "tame"]);
    let tamed = fs::read_to_string(place.dir().join("tame/meta.json")).unwrap();
    assert!(tamed.contains("\"name\": \"tame\""));
}
