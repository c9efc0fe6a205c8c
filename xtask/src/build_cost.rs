//! Measures what a dependency costs to build: a tiny program with `tollway` beside the same with `governor`.
//!
//! Both are built for release from nothing, alternately, in folders under `target/`, with the versions of this
//! workspace's `Cargo.lock`. CPU time is counted, of cargo and all compilers together: unlike the time on the clock it
//! hardly depends on what else the machine does. It comes from `/proc`, so this runs on Linux only.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::step::{Steps, cargo, target};

const ROUNDS: usize = 3;

/// The time unit of `/proc/*/stat` on every Linux, in seconds.
const TICK: f64 = 0.01;

/// The programs, each with the manifest's line for its dependency.
const PROGRAMS: [Program; 2] = [
    Program {
        name: "tollway",
        dependency: "tollway = { path = \"ROOT/crates/tollway\", default-features = false }",
        main: r#"use tollway::{Limiter, TokenBucket};

fn main() {
    let limits = Limiter::builder().limit("login", TokenBucket::per_minute(5).burst(10));
    let limiter = limits.build().expect("the limit is valid");
    println!("{:?}", limiter.spend("login", "alice", 1));
}
"#,
    },
    Program {
        name: "governor",
        dependency: "governor = \"0.10\"",
        main: r#"use std::num::NonZeroU32;

use governor::{Quota, RateLimiter};

fn main() {
    let per_minute = NonZeroU32::new(5).expect("five is not zero");
    let burst = NonZeroU32::new(10).expect("ten is not zero");
    let limiter = RateLimiter::keyed(Quota::per_minute(per_minute).allow_burst(burst));
    println!("{:?}", limiter.check_key(&"alice"));
}
"#,
    },
];

struct Program {
    name: &'static str,
    dependency: &'static str,
    main: &'static str,
}

/// Builds each program as often as `arguments` says, and prints how they compare.
pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<()> {
    let rounds = match arguments {
        [] => ROUNDS,
        [rounds] => rounds.parse().with_context(|| format!("`{rounds}` is no number of rounds"))?,
        _ => bail!("`bench build` takes one argument at most: the number of rounds"),
    };
    let folder = target()?.join("build-cost");
    for program in &PROGRAMS {
        program.write(&folder)?;
        let mut fetch = cargo("fetch --quiet --manifest-path");
        steps.run("fetch", fetch.arg(program.manifest(&folder)))?;
    }
    let mut seconds = [const { Vec::new() }; PROGRAMS.len()];
    for _ in 0..rounds {
        for (program, seconds) in PROGRAMS.iter().zip(&mut seconds) {
            seconds.push(program.build(steps, &folder)?);
        }
    }
    print(&mut seconds);
    Ok(())
}

impl Program {
    fn folder(&self, parent: &Path) -> PathBuf {
        parent.join(self.name)
    }

    fn manifest(&self, parent: &Path) -> PathBuf {
        self.folder(parent).join("Cargo.toml")
    }

    /// Writes the program's sources, and a lock file to start from.
    fn write(&self, parent: &Path) -> Result<()> {
        let folder = self.folder(parent);
        let root = std::env::current_dir().context("the root is there")?;
        let dependency = self.dependency.replace("ROOT", &root.display().to_string());
        let package = "[package]\nname = \"build-cost\"\nedition = \"2024\"\n";
        let manifest = format!("{package}\n[dependencies]\n{dependency}\n\n[workspace]\n");
        fs::create_dir_all(folder.join("src"))?;
        fs::write(self.manifest(parent), manifest)?;
        fs::write(folder.join("src/main.rs"), self.main)?;
        fs::copy("Cargo.lock", folder.join("Cargo.lock"))?;
        Ok(())
    }

    /// Builds the program from nothing, and returns the CPU time in seconds.
    fn build(&self, steps: &mut Steps, parent: &Path) -> Result<f64> {
        let built = self.folder(parent).join("target");
        if built.exists() {
            fs::remove_dir_all(&built).with_context(|| format!("cannot remove {}", built.display()))?;
        }
        let before = cpu_of_children()?;
        let mut build = cargo("build --quiet --release --offline --manifest-path");
        build.arg(self.manifest(parent)).arg("--target-dir").arg(&built);
        steps.run(self.name, &mut build)?;
        Ok(cpu_of_children()? - before)
    }
}

/// Prints the times of both programs in order, and the ratio of their medians.
fn print(seconds: &mut [Vec<f64>; PROGRAMS.len()]) {
    for (program, seconds) in PROGRAMS.iter().zip(seconds.iter_mut()) {
        seconds.sort_by(f64::total_cmp);
        let (least, most) = (seconds.first().unwrap_or(&f64::NAN), seconds.last().unwrap_or(&f64::NAN));
        println!("{:>10}  median {:>6.1} s CPU, {least:.1} to {most:.1}", program.name, median(seconds));
    }
    println!("{:>10}  {:.2}", "ratio", median(&seconds[0]) / median(&seconds[1]));
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the CPU time, in seconds, of all processes that this one has waited for, and of theirs.
fn cpu_of_children() -> Result<f64> {
    let stat =
        fs::read_to_string("/proc/self/stat").context("CPU time is read from /proc, which only Linux has")?;
    // The second field is the program's name in parentheses and may have blanks: fields are counted from behind it.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let times = fields.split(' ').skip(13).take(2).map(str::parse::<u32>);
    let ticks =
        times.sum::<Result<u32, _>>().context("/proc/self/stat has other fields than proc(5) says")?;
    Ok(f64::from(ticks) * TICK)
}
