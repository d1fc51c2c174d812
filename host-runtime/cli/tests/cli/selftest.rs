//! `hexflash selftest` on this machine and under the emulator; with a wrong word planted anywhere. On the
//! stand-in for a DSP it is tested in tests/cdsprpc.

use std::fs;

use serde_json::Value;

use super::support::emulated::{self, Expected};
use super::support::{Outcome, command, hexflash, outcome};

const VECTORS: &str = include_str!("../../../src/selftest/vectors.txt");

fn lines(found: &Value, kind: &str) -> Vec<(String, String)> {
    let lines = found["results"].as_array().unwrap().iter().filter(|line| line["kind"] == kind);
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    lines.map(|line| (word(&line["name"]), word(&line["verdict"]))).collect()
}

/// Verdict and text of the line with a name.
fn told(found: &Value, name: &str) -> (String, String) {
    let line = found["results"].as_array().unwrap().iter().find(|line| line["name"] == name);
    let line = line.unwrap_or_else(|| panic!("no line {name}: {found}"));
    let word = |field: &str| line[field].as_str().unwrap().to_owned();
    (word("verdict"), word("text"))
}

#[test]
fn inproc_gives_every_word() {
    let dir = tempfile::TempDir::new().unwrap();
    let report = dir.path().join("report.txt");
    let arguments = ["selftest", "-t", "2", "--json", "--report", report.to_str().unwrap()];
    let found = hexflash(&arguments).succeeded().json();
    assert_eq!((&found["ok"], &found["device"]), (&true.into(), &"inproc".into()), "{found}");
    let kernels = lines(&found, "kernel");
    assert_eq!(kernels.len(), VECTORS.matches("\nop ").count());
    assert!(kernels.iter().all(|(_, verdict)| verdict == "expected"), "{kernels:?}");
    // This processor has no instructions of HVX, and no packets.
    assert_eq!(lines(&found, "form"), []);
    assert!(lines(&found, "packets").iter().all(|(_, verdict)| verdict == "absent"), "{found}");
    assert_eq!(found["speeds"].as_array().unwrap().len(), 3, "{found}");
    for name in ["order of sums", "rounding of results"] {
        let (verdict, text) = told(&found, name);
        assert!(verdict == "expected" && text.ends_with("; in software, which is no evidence"), "{found}");
    }
    assert!(told(&found, "order of sums").1.starts_with("8 products at a time, as published for v75"));
    let (verdict, text) = told(&found, "one queue");
    assert!(verdict == "answer" && text.starts_with("in order, 32 of 32 pairs of 64 KiB"), "{text}");
    assert!(text.contains(", by threads; in software"), "{text}");
    // A busy machine may keep the second thread away.
    assert!(["answer", "absent"].contains(&told(&found, "two queues").0.as_str()), "{found}");
    assert_eq!(found["granted"]["threads"], 2, "{found}");
    let report = fs::read_to_string(report).unwrap();
    assert!(report.starts_with("hexflash selftest, version ") && report.contains("\nall is as expected\n"));
    for line in [
        "\nexpected  hmx     order of sums          8 products at a time",
        "\nanswer    dma     one queue              in order",
        "\nabsent    packets scalar                 this processor has no packets\n",
    ] {
        assert!(report.contains(line), "{report}");
    }
}

/// The last word of each op's result, one after the other.
#[test]
fn a_wrong_word_planted_in_any_kernel_is_named() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("vectors.txt");
    let start = VECTORS.find("\nop ").unwrap();
    let blocks: Vec<_> = VECTORS[start..].split("\n\n").collect();
    for (i, block) in blocks.iter().enumerate() {
        let name = block.trim().strip_prefix("op ").unwrap().split(';').next().unwrap();
        let (before, last) = block.trim_end().rsplit_once([' ', '\n']).unwrap();
        let wrong = u32::from_str_radix(last, 16).unwrap() ^ 0x0010_0000;
        let planted = format!("{before}\n{wrong:08x}");
        let others =
            blocks.iter().enumerate().map(|(k, other)| if k == i { planted.as_str() } else { other });
        fs::write(&file, others.collect::<Vec<_>>().join("\n\n")).unwrap();
        let outcome: Outcome = hexflash(&["selftest", "-t", "1", "--vectors", file.to_str().unwrap()]);
        assert_eq!(outcome.code, Some(1), "{name}: {outcome:#?}");
        // The last line, but for a log where the build lacks vectors of this processor.
        let verdict = outcome.stdout.lines().find(|line| line.starts_with("WRONG: ")).unwrap_or_default();
        assert!(verdict.starts_with(&format!("WRONG: {name}")), "{outcome:#?}");
        assert!(outcome.stdout.contains(&format!("and not {wrong:08x}")), "{name}: {outcome:#?}");
    }
}

#[test]
fn vectors_that_cannot_be_read_are_told() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("vectors.txt");
    fs::write(&file, "form vnone; 68 75\n").unwrap();
    let file = file.to_str().unwrap();
    hexflash(&["selftest", "--vectors", file]).failed(2, "line 1: form vnone; 68 75", "vectors.txt");
    hexflash(&["selftest", "--serial", "R58", "-t", "3"]).failed(2, "cannot be used with", "hexflash --help");
}

/// Every form of a version is answered as expected, and so are the questions: the emulator follows the same
/// published descriptions. A wrong word in the first lane of any form is named.
#[test]
fn the_emulator_gives_every_word() {
    for (arch, forms) in [("v68", 13), ("v73", 18), ("v79", 11)] {
        if emulated::expected(arch) == Expected::NotBuilt {
            continue;
        }
        let arguments = ["selftest", "--device", "qemu", "--arch", arch, "-t", "1", "--json"];
        let outcome = hexflash(&arguments);
        if outcome.stderr.contains("is not there") && emulated::expected(arch) == Expected::Perhaps {
            eprintln!("skipped: {}", outcome.stderr);
            continue;
        }
        let found = outcome.succeeded().json();
        let all = lines(&found, "form");
        assert_eq!((all.len(), &found["hexagon"]), (forms, &arch.into()), "{found}");
        let expected = |line: &(String, String)| line.1 == "expected" || line.1 == "absent";
        assert!(all.iter().chain(&lines(&found, "kernel")).all(expected), "{found}");
        questions_are_answered(arch, &found);
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("vectors.txt");
        let planted: Vec<_> = VECTORS.lines().map(spoiled).collect();
        fs::write(&file, planted.join("\n")).unwrap();
        let found = hexflash(&[&arguments[..], &["--vectors", file.to_str().unwrap()]].concat());
        assert_eq!(found.code, Some(1), "{found:#?}");
        let found = found.json();
        let told = |line: &&(String, String)| ["WRONG", "wrong", "news", "absent"].contains(&line.1.as_str());
        let all = lines(&found, "form");
        assert_eq!(all.iter().filter(told).count(), forms, "{found}");
    }
}

/// The emulator has the matrix unit of the version, transfers in the order of their queue, and counts
/// packets.
fn questions_are_answered(arch: &str, found: &Value) {
    let (verdict, text) = told(found, "order of sums");
    let published = match arch {
        "v68" => "no matrix unit",
        "v73" => "4 products at a time, as published for v73; by the emulator, which is no evidence",
        _ => "8 products at a time, as published for v75 to v81; by the emulator, which is no evidence",
    };
    assert_eq!(
        (verdict.as_str(), text.as_str()),
        (if arch == "v68" { "absent" } else { "expected" }, published)
    );
    let (verdict, text) = told(found, "one queue");
    assert!(verdict == "answer" && text.starts_with("in order, 32 of 32 pairs"), "{text}");
    assert_eq!(told(found, "two queues").1, "no second thread took part");
    for name in ["packets, scalar", "packets, vectors", "packets, vectors with loads"] {
        let speeds = found["speeds"].as_array().unwrap().iter();
        let [speed] = &speeds.filter(|speed| speed["what"] == name).collect::<Vec<_>>()[..] else {
            panic!("{name}: {found}")
        };
        // What is written, and a few packets around the loop.
        let value = speed["value"].as_f64().unwrap();
        assert!((1.0..1.001).contains(&value), "{name}: {value}");
        assert_eq!(speed["unit"], "packets per packet, as the emulator counts");
    }
}

/// Engines that are told to let descriptors overtake one another are found out.
#[test]
fn overtaking_is_told() {
    if emulated::expected("v73") == Expected::NotBuilt {
        return;
    }
    let arguments = ["selftest", "--device", "qemu", "--arch", "v73", "-t", "1", "--json"];
    let mut shuffled = command(&arguments);
    shuffled.envs([("HEXAGON_DMA", "shuffle"), ("HEXAGON_DMA_SEED", "7")]);
    let outcome = outcome(shuffled.output().unwrap(), &arguments);
    if outcome.stderr.contains("is not there") && emulated::expected("v73") == Expected::Perhaps {
        eprintln!("skipped: {}", outcome.stderr);
        return;
    }
    let (verdict, text) = told(&outcome.succeeded().json(), "one queue");
    assert!(verdict == "answer" && text.starts_with("overtaken, "), "{text}");
}

/// A line of lanes with another last bit of its result.
fn spoiled(line: &str) -> String {
    let Some((takes, gives)) = line.split_once(" : ") else { return line.to_owned() };
    let (rest, last) = gives.rsplit_once(' ').map_or((String::new(), gives), |(a, b)| (format!("{a} "), b));
    format!("{takes} : {rest}{:08x}", u32::from_str_radix(last, 16).unwrap() ^ 1)
}
