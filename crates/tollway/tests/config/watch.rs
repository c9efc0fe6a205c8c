//! A change of the file is noticed however it is made.

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use tollway::config::FileWatch;

const ONE: &str = "limits: { A: { burst: 1, count: 1, period: 1s } }\n";
/// As long as the other: only the content tells them apart.
const TWO: &str = "limits: { A: { burst: 2, count: 1, period: 1s } }\n";

/// A file that is watched for changes.
struct Watched {
    directory: TempDir,
    watch: FileWatch,
}

impl Watched {
    fn new(content: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("policy.yaml"), content).expect("a file");
        let mut watch = FileWatch::new(directory.path().join("policy.yaml"));
        watch.read().expect("a policy");
        Self { directory, watch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The change is told once.
    fn check(&mut self, changed: bool) {
        assert_eq!([self.watch.changed(), self.watch.changed()], [changed, false]);
    }

    /// Makes the file look as though it had been written long ago.
    fn age(&self) {
        set_modified(&self.path("policy.yaml"), SystemTime::now() - Duration::from_secs(3_600));
    }
}

fn set_modified(path: &Path, modified: SystemTime) {
    let file = File::options().write(true).open(path).expect("a file");
    file.set_times(FileTimes::new().set_modified(modified)).expect("a file of one's own");
}

#[test]
fn an_edit_in_place_is_noticed() {
    for aged in [false, true] {
        let mut file = Watched::new(ONE);
        if aged {
            file.age();
        }
        file.check(false);
        fs::write(file.path("policy.yaml"), TWO).expect("written");
        file.check(true);
        let mut open = File::options().append(true).open(file.path("policy.yaml")).expect("opened");
        open.write_all(b"# more\n").expect("written");
        file.check(true);
    }
}

#[test]
fn an_edit_that_keeps_length_and_time_is_noticed() {
    let mut file = Watched::new(ONE);
    file.age();
    file.check(false);
    let modified = fs::metadata(file.path("policy.yaml")).and_then(|file| file.modified()).expect("a time");
    fs::write(file.path("policy.yaml"), TWO).expect("written");
    set_modified(&file.path("policy.yaml"), modified);
    file.check(true);
}

#[test]
fn a_rename_over_the_file_is_noticed() {
    let mut file = Watched::new(ONE);
    fs::write(file.path("new"), TWO).expect("written");
    fs::rename(file.path("new"), file.path("policy.yaml")).expect("renamed");
    file.check(true);
}

#[test]
fn a_file_that_is_gone_or_empty_for_a_moment_is_being_written() {
    let mut file = Watched::new(ONE);
    fs::remove_file(file.path("policy.yaml")).expect("removed");
    assert!(!file.watch.changed());
    fs::write(file.path("policy.yaml"), ONE).expect("written");
    file.check(false); // back as it was
    fs::write(file.path("policy.yaml"), "").expect("written");
    assert!(!file.watch.changed());
    fs::write(file.path("policy.yaml"), TWO).expect("written");
    file.check(true);
}

#[test]
fn a_file_that_stays_away_has_changed_and_so_it_has_when_it_is_back() {
    for vanish in [|path: &Path| fs::remove_file(path), |path: &Path| fs::write(path, "")] {
        let mut file = Watched::new(ONE);
        vanish(&file.path("policy.yaml")).expect("gone");
        let looks: [bool; 3] = std::array::from_fn(|_| file.watch.changed());
        assert_eq!(looks, [false, true, false]);
        assert!(file.watch.read().is_err());
        file.check(false);
        fs::write(file.path("policy.yaml"), ONE).expect("written");
        file.check(true); // as it was, and yet restored
    }
}

#[test]
fn a_file_that_is_restored_after_it_was_read_empty_has_changed() {
    for broken in ["", "# nothing yet\n", "store: memory\n", "limits:\n", "limits: { A: {", "\0"] {
        let mut file = Watched::new(ONE);
        fs::write(file.path("policy.yaml"), broken).expect("written");
        assert!(file.watch.read().is_err(), "{broken:?}"); // on SIGHUP, say
        file.check(false);
        fs::write(file.path("policy.yaml"), ONE).expect("written");
        file.check(true);
        assert!(file.watch.read().is_ok());
    }
}

#[test]
fn a_file_of_overrides_is_watched_with_the_file_that_names_it() {
    let numbers = |burst| format!("A:x: {{ burst: {burst}, count: 1, period: 1s }}\n");
    let mut file = Watched::new(ONE);
    fs::write(file.path("policy.yaml"), format!("{ONE}overrides: more.yaml\n")).expect("written");
    file.check(true);
    assert!(file.watch.read().is_err(), "there is no such file yet");
    fs::write(file.path("more.yaml"), numbers(1)).expect("written");
    file.check(true);
    assert!(file.watch.read().is_ok());
    fs::write(file.path("more.yaml"), numbers(2)).expect("written");
    file.check(true);
    fs::remove_file(file.path("more.yaml")).expect("removed");
    assert_eq!([file.watch.changed(), file.watch.changed()], [false, true]);
    assert!(file.watch.read().is_err());
    fs::write(file.path("more.yaml"), numbers(2)).expect("written");
    file.check(true);
    fs::write(file.path("policy.yaml"), ONE).expect("written");
    file.check(true);
    assert!(file.watch.read().is_ok());
    fs::write(file.path("more.yaml"), numbers(3)).expect("written");
    file.check(false); // nobody names it any more
}

#[test]
fn a_file_that_was_not_there_changes_when_it_comes() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("policy.yaml");
    let mut watch = FileWatch::new(&path);
    assert!(!watch.changed());
    fs::write(&path, ONE).expect("written");
    assert!(watch.changed());
    assert!(!watch.changed());
}

#[test]
fn a_touch_is_no_change() {
    let mut file = Watched::new(ONE);
    file.age();
    file.check(false);
    set_modified(&file.path("policy.yaml"), SystemTime::now());
    file.check(false);
    fs::write(file.path("policy.yaml"), ONE).expect("written");
    file.check(false);
}

/// The way the kubelet does it: the file is a link into `..data`, `..data` is a link to a directory named for the
/// moment, and an update renames a new `..data` over the old one. The file's own link never changes.
#[test]
fn a_config_map_that_swaps_its_link_is_noticed() {
    let mount = tempfile::tempdir().expect("a directory");
    let update = |version: &str, content: &str| {
        fs::create_dir(mount.path().join(version)).expect("a directory");
        fs::write(mount.path().join(version).join("policy.yaml"), content).expect("a file");
        set_modified(&mount.path().join(version).join("policy.yaml"), SystemTime::UNIX_EPOCH);
        symlink(version, mount.path().join("..data_tmp")).expect("a link");
        fs::rename(mount.path().join("..data_tmp"), mount.path().join("..data")).expect("renamed");
    };
    update("..2026_01_01", ONE);
    symlink("..data/policy.yaml", mount.path().join("policy.yaml")).expect("a link");
    let mut watch = FileWatch::new(mount.path().join("policy.yaml"));
    watch.read().expect("a policy");
    assert!(!watch.changed());

    update("..2026_01_02", TWO);
    fs::remove_dir_all(mount.path().join("..2026_01_01")).expect("removed");
    assert!(watch.changed());
    assert!(!watch.changed());

    update("..2026_01_03", TWO);
    assert!(!watch.changed(), "another directory, the same content");
    update("..2026_01_04", ONE);
    assert!(watch.changed());
}

#[test]
fn a_link_that_leads_elsewhere_is_noticed() {
    let mut file = Watched::new(ONE);
    fs::write(file.path("two.yaml"), TWO).expect("written");
    fs::remove_file(file.path("policy.yaml")).expect("removed");
    symlink("nowhere.yaml", file.path("policy.yaml")).expect("a link");
    assert!(!file.watch.changed());
    fs::remove_file(file.path("policy.yaml")).expect("removed");
    symlink("two.yaml", file.path("policy.yaml")).expect("a link");
    file.check(true);
}
