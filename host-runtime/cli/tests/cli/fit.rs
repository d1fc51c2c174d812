//! Whether models fit, how many sessions they take, and what would make them fit.

use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Value as GgufValue};
use serde_json::Value;
use tempfile::TempDir;

use super::big_models::{hole, write, zeros};
use super::support::{Change, changed, hexflash, run, text};

/// `info --json`: how the model fits.
#[track_caller]
fn fit(arguments: &[&str]) -> Value {
    let report = hexflash(&[&["info", "--json"], arguments].concat()).succeeded().json();
    report["fit"].clone()
}

/// Where in the list a version up to v73 is, and a later one.
const KINDS: [usize; 2] = [0, 3];

/// The sessions up to v73 and on the later ones, which are alike.
#[track_caller]
fn sessions(fit: &Value) -> [Option<u64>; 2] {
    let chips = fit["chips"].as_array().unwrap();
    let names: Vec<_> = chips.iter().map(|chip| chip["chip"].as_str().unwrap()).collect();
    assert_eq!(names, ["v68", "v69", "v73", "v75", "v79", "v81"]);
    let found: Vec<_> = chips.iter().map(|chip| chip["sessions"].as_u64()).collect();
    assert!(found[..3].iter().all(|old| *old == found[0]), "{fit}");
    assert!(found[3..].iter().all(|new| *new == found[3]), "{fit}");
    KINDS.map(|chip| found[chip])
}

fn total(needs: &Value) -> u64 {
    ["weights", "kv", "recurrent", "other"].iter().map(|part| needs[part].as_u64().unwrap()).sum()
}

#[test]
fn a_small_model_fits_one_session() {
    let report = hexflash(&["info", "--json"]).succeeded().json();
    let (fit, memory) = (&report["fit"], &report["memory"]);
    assert_eq!(sessions(fit), [Some(1), Some(1)]);
    assert_eq!(fit["estimated"], false);
    assert_eq!(report["unsupported"], Value::Null);
    let needs = &fit["chips"][0]["needs"][0];
    for (part, planned) in [("weights", "weights"), ("kv", "kv"), ("recurrent", "recurrent")] {
        assert_eq!(needs[part], memory[planned]);
    }
    let shown = hexflash(&["info"]).succeeded().stdout;
    assert!(shown.contains("fit, with a context of 512: sessions"), "{shown}");
    assert!(!shown.contains("would do with"), "{shown}");
}

/// Two layers of 2 GiB each, which one process cannot map.
#[test]
fn a_model_of_four_gib_takes_two_sessions() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("zeros.gguf");
    zeros(&path, 4096, 40_960, 64);
    let report = fit(&["-m", text(&path)]);
    assert_eq!(sessions(&report), [Some(2), Some(2)]);
    let needs = report["chips"][0]["needs"].as_array().unwrap();
    let layer = 3 * 4 * 4096 * 40_960u64;
    for session in needs {
        let weights = session["weights"].as_u64().unwrap();
        assert!((layer..layer + (64 << 20)).contains(&weights), "{session}");
    }
    let shown = hexflash(&["info", "-m", text(&path)]).succeeded().stdout;
    assert!(shown.contains("v73: 1 session would do with weights of at most "), "{shown}");
    assert!(shown.contains("(this file has 32.0)"), "{shown}");
}

/// An embedding of 5 GiB is one mapping, which nothing splits.
#[test]
fn an_embedding_that_no_session_can_map() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("zeros.gguf");
    zeros(&path, 5120, 32, 248_320);
    let report = fit(&["-m", text(&path)]);
    assert_eq!(sessions(&report), [None, None]);
    let embedding = (4u64 * 5120 * 248_320) as f64;
    for (chip, limit) in [(KINDS[0], f64::from(i32::MAX)), (KINDS[1], 3_355_443_200.0)] {
        let remedy = &report["chips"][chip]["remedy"];
        assert_eq!((&remedy["sessions"], &remedy["context"]), (&2.into(), &Value::Null));
        let bits = remedy["weight_bits"].as_f64().unwrap();
        assert!(bits <= 32.0 * limit / embedding && bits > 32.0 * limit / embedding - 0.5, "{bits}");
    }
    let shown = hexflash(&["info", "-m", text(&path)]).succeeded().stdout;
    assert!(
        shown.contains("v73: does not fit 2 sessions; 2 sessions would do with weights of at most"),
        "{shown}"
    );
}

/// The context that is proposed fits, and the next longer one does not.
#[test]
fn contexts_that_are_proposed_are_the_longest() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("long.gguf");
    let longest = GgufValue::from(i32::MAX as u32);
    changed("tiny-hybrid-q8_0.gguf", &path, &[Change::Key("qwen35.context_length", longest)]);
    let with = |n: u64| fit(&["-m", text(&path), "-c", &n.to_string()]);
    // A kilobyte for each position, in two layers.
    assert_eq!(sessions(&with(2_000_000)), [Some(1), Some(1)]);
    assert_eq!(sessions(&with(4_000_000)), [Some(2), Some(2)]);
    let long = with(8_000_000);
    assert_eq!(sessions(&long), [None, None]);
    for (kind, chip) in KINDS.into_iter().enumerate() {
        let n = long["chips"][chip]["remedy"]["context"].as_u64().unwrap();
        assert_eq!(n % 256, 0);
        assert!(sessions(&with(n))[kind].is_some(), "{n}");
        assert_eq!(sessions(&with(n + 256))[kind], None, "{n}");
    }
    let shown = hexflash(&["info", "-m", text(&path), "-c", "8000000"]).succeeded().stdout;
    assert!(shown.contains("sessions would do with -c "), "{shown}");
}

/// A model of an architecture that this version does not run, by what its metadata say.
#[test]
fn other_architectures_are_estimated() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("other.gguf");
    let (layers, width, vocabulary, rows) = (12u64, 4096u64, 1000u64, 262_144u64);
    let mut writer = GgufWriter::new();
    writer.kv("general.architecture", "mamba9");
    for (key, value) in [
        ("block_count", layers),
        ("context_length", 32_768),
        ("embedding_length", width),
        ("attention.head_count", 32),
        ("attention.head_count_kv", 8),
    ] {
        writer.kv(&format!("mamba9.{key}"), u32::try_from(value).unwrap());
    }
    hole(&mut writer, "token_embd.weight", GgmlType::Q6_K, &[width, vocabulary]);
    hole(&mut writer, "output.weight", GgmlType::Q6_K, &[width, vocabulary]);
    for layer in 0..layers {
        hole(&mut writer, &format!("blk.{layer}.ffn.weight"), GgmlType::Q4_K, &[width, rows]);
    }
    write(writer, &path);
    let report = fit(&["-m", text(&path), "-c", "0"]);
    assert_eq!((&report["estimated"], &report["n_ctx"]), (&true.into(), &32_768.into()));
    let layer = width * rows / 256 * 144;
    let head = width * vocabulary / 256 * 210;
    let cache = 2 * 8 * (128 + 128) * 32_768;
    // 576 and 128 MiB for each of twelve layers: four at a time.
    assert_eq!(sessions(&report), [Some(3), Some(3)]);
    let needs = report["chips"][KINDS[1]]["needs"].as_array().unwrap();
    let found: Vec<_> = needs.iter().map(|needs| [needs["weights"].as_u64(), needs["kv"].as_u64()]).collect();
    let expected =
        [4 * layer + head, 4 * layer, 4 * layer + head].map(|bytes| [Some(bytes), Some(4 * cache)]);
    assert_eq!(found, expected);
    let report = hexflash(&["info", "--json", "-m", text(&path)]).succeeded().json();
    assert_eq!(report["memory"], Value::Null);
    assert!(report["unsupported"].as_str().unwrap().contains("architecture \"mamba9\""), "{report}");
    let shown = hexflash(&["info", "-m", text(&path)]).succeeded().stdout;
    assert!(shown.contains("estimated from the file"), "{shown}");
    // Programs are recorded of what runs.
    let program = hexflash(&["info", "-m", text(&path), "--program", "decode"]);
    program.failed(2, "architecture \"mamba9\"", "this version runs");
}

/// Metadata of strangers may claim anything.
#[test]
fn claims_beyond_all_reason() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("other.gguf");
    for (layers, context, heads, width) in [
        (3, u32::MAX, u32::MAX, u32::MAX),
        (1, u32::MAX, 1, u32::MAX),
        (3, 0, 0, 0),
        (0, 512, 8, 64),
        (u32::MAX, 512, 8, 64),
    ] {
        let mut writer = GgufWriter::new();
        writer.kv("general.architecture", "mamba9");
        for (key, value) in [
            ("block_count", layers),
            ("context_length", context),
            ("embedding_length", width),
            ("attention.head_count", heads),
            ("attention.key_length", width),
        ] {
            writer.kv(&format!("mamba9.{key}"), value);
        }
        for name in ["blk.0.x", "blk.4000000000.x", "blk.99999999999999999999.x", "y"] {
            hole(&mut writer, name, GgmlType::F16, &[32, 4]);
        }
        write(writer, &path);
        for more in [&[][..], &["-c", "0"], &["-c", "4294967295", "--parallel", "4294967295"]] {
            let shown = hexflash(&[&["info", "-m", text(&path)], more].concat()).succeeded().stdout;
            assert!(shown.contains("this version does not run it"), "{shown}");
        }
    }
}

/// What a file does not say is not made up.
#[test]
fn metadata_that_do_not_say() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("other.gguf");
    let mut writer = GgufWriter::new();
    writer.kv("general.architecture", "mamba9");
    hole(&mut writer, "token_embd.weight", GgmlType::F16, &[32, 4]);
    write(writer, &path);
    let shown = hexflash(&["info", "-m", text(&path)]).succeeded().stdout;
    assert!(shown.contains("its metadata do not say how much memory"), "{shown}");
}

/// As many sessions as it takes, with the same text, and a line that says so.
#[test]
fn sessions_are_chosen() {
    let one = total(&fit(&["-c", "128"])["chips"][0]["needs"][0]);
    let generate = |arguments: &[&str]| {
        let all = [&["--temp", "0", "-n", "12", "-c", "128", "--json", "def f(x):"], arguments].concat();
        let outcome = run(&all).succeeded();
        (outcome.json()["tokens"].clone(), outcome.stderr)
    };
    let (tokens, said) = generate(&[]);
    assert_eq!(said, "");
    assert_eq!(generate(&["--session-memory", &one.to_string()]), (tokens.clone(), String::new()));
    let less = (one - 1).to_string();
    let two = "[the model does not fit one session of the device: it is split over 2]\n";
    assert_eq!(generate(&["--session-memory", &less]), (tokens.clone(), two.to_owned()));
    // Whoever names a number has it.
    assert_eq!(generate(&["--session-memory", &less, "--sessions", "1"]), (tokens.clone(), String::new()));
    assert_eq!(generate(&["--session-memory", "1", "--sessions", "3"]), (tokens, String::new()));
    let none = run(&["--session-memory", "1000000", "-c", "128", "x"]);
    none.failed(2, "the model does not fit this device: 8 sessions", "a smaller context (-c)");
    let bench = [
        "bench",
        "--no-repack-cache",
        "-c",
        "128",
        "-p",
        "2",
        "-n",
        "1",
        "-r",
        "1",
        "--session-memory",
        &less,
    ];
    assert_eq!(hexflash(&bench).succeeded().stderr, two);
}
