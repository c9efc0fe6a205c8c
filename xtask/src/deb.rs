//! Builds a Debian package from a release build, and checks it: its files, its unit, and that its binary serves with
//! its configuration.
//!
//! ```text
//! /usr/bin/tollway   /lib/systemd/system/tollway.service   /etc/tollway/tollway.yaml   /usr/share/doc/tollway/
//! ```
//!
//! The files are laid out here, and `dpkg-deb` makes the archive. debhelper would need a source package, and a crate
//! that writes archives would be one more dependency for what every Debian has.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::setup::{self, find};
use crate::step::{Steps, cargo, target};

/// Each file of the package: its place there, its mode, and where it is from. The binary is added to these.
const FILES: &[(&str, u32, &str)] = &[
    ("DEBIAN/postinst", 0o755, "packaging/debian/postinst"),
    ("DEBIAN/prerm", 0o755, "packaging/debian/prerm"),
    ("etc/tollway/tollway.yaml", 0o644, "packaging/tollway.yaml"),
    ("lib/systemd/system/tollway.service", 0o644, "packaging/systemd/tollway.service"),
    ("usr/share/doc/tollway/LICENSE-APACHE", 0o644, "LICENSE-APACHE"),
    ("usr/share/doc/tollway/LICENSE-MIT", 0o644, "LICENSE-MIT"),
    ("usr/share/doc/tollway/README.md", 0o644, "README.md"),
    ("usr/share/doc/tollway/copyright", 0o644, "packaging/debian/copyright"),
];
const BINARY: &str = "usr/bin/tollway";
const CONFIG: &str = "etc/tollway/tollway.yaml";
const UNIT: &str = "lib/systemd/system/tollway.service";

/// Builds the package, of this binary or of a new release build, and checks it.
pub(crate) fn run(steps: &mut Steps, binary: Option<PathBuf>) -> Result<()> {
    setup::install(steps, &[("dpkg-deb", "dpkg")])?;
    let binary = match binary {
        Some(binary) => binary,
        None => {
            steps.run("build", &mut cargo("build --locked --release --package tollway-cli"))?;
            target()?.join("release/tollway")
        }
    };
    let folder = target()?.join("deb");
    let (root, version) = (folder.join("root"), env!("CARGO_PKG_VERSION"));
    let architecture = printed(Command::new("dpkg").arg("--print-architecture"))?;
    let package = folder.join(format!("tollway_{version}_{architecture}.deb"));
    steps.take("lay out", &root.display().to_string(), || lay_out(&root, &binary, version, &architecture))?;
    let mut build = Command::new("dpkg-deb");
    steps.run("archive", build.args(["--build", "--root-owner-group"]).args([&root, &package]))?;
    steps.take("check the files", "dpkg-deb --contents", || check_contents(&package))?;
    let scratch = folder.join("scratch");
    remove(&scratch)?;
    let mut extract = Command::new("dpkg-deb");
    steps.run("install into a scratch root", extract.arg("--extract").args([&package, &scratch]))?;
    match find("systemd-analyze") {
        Some(analyze) => {
            steps.take("check the unit", "systemd-analyze verify", || check_unit(&analyze, &scratch))?
        }
        None => {
            eprintln!("NOT CHECKED: the unit, because systemd-analyze is not installed (Debian: systemd)")
        }
    }
    steps.take("serve", "tollway serve, with the configuration of the package", || check_serves(&scratch))?;
    println!("{}", package.display());
    Ok(())
}

fn lay_out(root: &Path, binary: &Path, version: &str, architecture: &str) -> Result<()> {
    remove(root)?;
    for (place, mode, from) in FILES {
        put(root, place, *mode, &fs::read(from).with_context(|| (*from).to_owned())?)?;
    }
    let program = fs::read(binary).with_context(|| binary.display().to_string())?;
    put(root, BINARY, 0o755, &program)?;
    put(root, "DEBIAN/conffiles", 0o644, format!("/{CONFIG}\n").as_bytes())?;
    let size = program.len().div_ceil(1024).to_string();
    let control = fs::read_to_string("packaging/debian/control").context("packaging/debian/control")?;
    let control = control
        .replace("VERSION", version)
        .replace("ARCHITECTURE", architecture)
        .replace("INSTALLED_SIZE", &size)
        .replace("GLIBC", &needed_glibc(&program));
    put(root, "DEBIAN/control", 0o644, control.as_bytes())
}

/// Writes one file of the package.
fn put(root: &Path, place: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let path = root.join(place);
    let folder = path.parent().context("a file of the package is in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    // Folders are made by whoever builds, whose mask may be strict: those of a package are for everybody.
    for folder in folder.ancestors().take_while(|folder| folder.starts_with(root)) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
}

/// Returns the oldest version of glibc that has all symbols of a program: the highest that its symbols name.
fn needed_glibc(program: &[u8]) -> String {
    let mark = b"GLIBC_";
    let versions = program.windows(mark.len()).enumerate().filter(|(_, window)| window == mark);
    let parsed = versions.filter_map(|(at, _)| {
        let digits =
            program[at + mark.len()..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.');
        let text: String = digits.map(|byte| char::from(*byte)).collect();
        let (major, minor) = text.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.split('.').next()?.parse::<u32>().ok()?))
    });
    let (major, minor) = parsed.max().unwrap_or((2, 28));
    format!("{major}.{minor}")
}

/// Checks that the archive has every file, with its mode, and belongs to root.
fn check_contents(package: &Path) -> Result<()> {
    let listed = printed(Command::new("dpkg-deb").arg("--contents").arg(package))?;
    let files = FILES.iter().filter(|(place, ..)| !place.starts_with("DEBIAN/"));
    let files = files.map(|(place, mode, _)| (*place, *mode)).chain([(BINARY, 0o755)]);
    for (place, mode) in files {
        let line = listed.lines().find(|line| line.ends_with(&format!(" ./{place}")));
        let line = line.with_context(|| format!("the package has no {place}"))?;
        let expected = if mode == 0o755 { "-rwxr-xr-x root/root" } else { "-rw-r--r-- root/root" };
        ensure!(line.starts_with(expected), "{place} should be {expected}: {line}");
    }
    Ok(())
}

/// Checks the unit where its binary is, and that every setting of it is known.
fn check_unit(analyze: &Path, scratch: &Path) -> Result<()> {
    let verified = Command::new(analyze)
        .args(["verify", "--man=no", "--root"])
        .arg(scratch)
        .arg(format!("/{UNIT}"))
        .output()
        .context("systemd-analyze cannot be started")?;
    let said = String::from_utf8_lossy(&verified.stderr);
    // A scratch root has none of the units and programs of a system.
    let ours: Vec<_> = said.lines().filter(|line| line.contains("tollway.service:")).collect();
    let ours: Vec<_> =
        ours.into_iter().filter(|line| !line.contains("/bin/kill") && !line.contains("not found")).collect();
    ensure!(ours.is_empty(), "{}", ours.join("\n"));
    Ok(())
}

/// Starts the binary with the configuration of the package, asks it once, and stops it.
fn check_serves(scratch: &Path) -> Result<()> {
    let (binary, config) = (scratch.join(BINARY), scratch.join(CONFIG));
    let data = scratch.join("var/lib/tollway");
    let mut serve = Command::new(&binary);
    serve.arg("serve").arg("--config").arg(&config).arg("--data").arg(&data);
    serve.args(["--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let mut child =
        Running(serve.stdout(Stdio::piped()).spawn().context("the packaged binary cannot be started")?);
    // Kept open until the end: a server whose output nobody reads would be another check.
    let mut output = BufReader::new(child.0.stdout.take().context("its output is piped")?);
    let address = loop {
        let mut line = String::new();
        ensure!(output.read_line(&mut line)? > 0, "the packaged binary did not say where it listens");
        if let Some(url) = line.trim().strip_prefix("http ") {
            break url.trim().trim_start_matches("http://").to_owned();
        }
    };
    let spent =
        Command::new(&binary).args(["spend", "demo:alice", "--cost", "5", "--addr", &address]).status()?;
    let denied =
        Command::new(&binary).args(["spend", "demo:alice", "--cost", "5", "--addr", &address]).status()?;
    ensure!((spent.code(), denied.code()) == (Some(0), Some(1)), "expected one to pass: {spent}, {denied}");
    let pid = child.0.id().to_string();
    ensure!(Command::new("kill").args(["-TERM", &pid]).status()?.success(), "cannot stop the server");
    let ended = child.0.wait()?;
    ensure!(ended.success(), "the server ended with {ended}");
    ensure!(fs::read_dir(&data)?.count() > 1, "the journal in {} is empty", data.display());
    Ok(())
}

/// A process that ends with the task.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns what a command prints, without the line end.
fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    Ok(())
}
