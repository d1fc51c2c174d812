//! Round trips from writer to reader, accessor errors, and split models.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::writer::{GgufWriter, WriteError};
use super::*;

/// Writes a model into `dir` under `name`.
fn save(dir: &TempDir, name: &str, writer: &GgufWriter<'_>) -> PathBuf {
    let path = dir.path().join(name);
    let mut bytes = Vec::new();
    writer.write_to(&mut bytes).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

/// Opens a model that holds the given metadata only. The file is unlinked at once; it stays open.
fn model(build: impl FnOnce(&mut GgufWriter<'_>)) -> Gguf {
    let dir = TempDir::new().unwrap();
    let mut writer = GgufWriter::new();
    build(&mut writer);
    Gguf::open(&save(&dir, "m.gguf", &writer)).unwrap()
}

#[track_caller]
fn assert_message<T: std::fmt::Debug>(result: Result<T, GgufError>, expected: &str) {
    let message = result.unwrap_err().to_string();
    assert!(message.contains(expected), "{message:?} lacks {expected:?}");
    assert!(!message.contains('\n') && message.contains(".gguf: ") && message.contains("; "), "{message:?}");
}

#[test]
fn every_value_type_round_trips() {
    let values: Vec<(&str, Value)> = vec![
        ("u8", 200u8.into()),
        ("i8", (-100i8).into()),
        ("u16", 60_000u16.into()),
        ("i16", (-30_000i16).into()),
        ("u32", 4_000_000_000u32.into()),
        ("i32", (-2_000_000_000i32).into()),
        ("u64", u64::MAX.into()),
        ("i64", i64::MIN.into()),
        ("f32", 1.5e-6f32.into()),
        ("f64", 1e300f64.into()),
        ("bool", true.into()),
        ("string", "füße\n".into()),
        ("empty string", "".into()),
        ("u8s", vec![1u8, 2].into()),
        ("i8s", vec![-1i8].into()),
        ("u16s", vec![1u16, 65_535].into()),
        ("i16s", vec![-1i16].into()),
        ("u32s", vec![7u32; 100].into()),
        ("i32s", vec![11, -11, 10i32].into()),
        ("u64s", vec![u64::MAX].into()),
        ("i64s", vec![i64::MIN].into()),
        ("f32s", vec![0.25f32, f32::INFINITY].into()),
        ("f64s", vec![0.1f64].into()),
        ("bools", vec![true, false, true].into()),
        ("strings", ["a", "", "ein", "ñ"].as_slice().into()),
        ("none", Vec::<u32>::new().into()),
        ("no strings", StringArray::default().into()),
    ];
    let gguf = model(|w| {
        for (key, value) in &values {
            w.kv(key, value.clone());
        }
    });
    assert_eq!(gguf.meta().len(), values.len());
    for ((key, value), (read_key, read)) in values.iter().zip(gguf.meta().iter()) {
        assert_eq!((*key, value), (read_key, read));
        assert_eq!(gguf.meta().get(key), Some(value));
    }
    let strings = gguf.meta().require_strings("strings").unwrap();
    assert_eq!(strings.iter().collect::<Vec<_>>(), ["a", "", "ein", "ñ"]);
    assert_eq!((strings.get(2), strings.get(4)), (Some("ein"), None));
}

#[test]
fn tensors_of_every_type_round_trip() {
    let dir = TempDir::new().unwrap();
    for alignment in [8, 32, 4096] {
        let mut writer = GgufWriter::new();
        writer.version(2).alignment(alignment).unwrap();
        for (fill, &t) in GgmlType::ALL.iter().enumerate() {
            let ne = [t.block_len() * 2, 3];
            let bytes = vec![fill as u8; t.tensor_bytes(&ne).unwrap() as usize];
            writer.tensor(t.name(), t, &ne, bytes).unwrap();
        }
        let gguf = Gguf::open(&save(&dir, "m.gguf", &writer)).unwrap();
        assert_eq!(gguf.version(), 2);
        assert_eq!(gguf.tensors().len(), GgmlType::ALL.len());
        for (fill, &ggml_type) in GgmlType::ALL.iter().enumerate() {
            let t = gguf.require_tensor(ggml_type.name()).unwrap();
            assert_eq!((t.ggml_type, t.n_dims, t.shard), (ggml_type, 2, 0));
            assert_eq!(t.ne, [ggml_type.block_len() * 2, 3, 1, 1]);
            assert_eq!(t.shape(), &t.ne[..2]);
            assert_eq!(t.elements(), ggml_type.block_len() * 6);
            assert_eq!(t.size, t.row_bytes() * 3);
            assert_eq!(t.offset % u64::from(alignment), 0);
            assert_eq!(gguf.data(t).unwrap(), vec![fill as u8; t.size as usize]);
        }
    }
}

#[test]
fn dimensions_beyond_the_stored_ones_are_one() {
    let gguf = model(|w| {
        w.tensor("v", GgmlType::F32, &[3], vec![0; 12]).unwrap();
        w.tensor("t", GgmlType::I8, &[2, 3, 4, 5], vec![0; 120]).unwrap();
    });
    assert_eq!(gguf.tensor("v").unwrap().ne, [3, 1, 1, 1]);
    assert_eq!(gguf.tensor("t").unwrap().shape(), [2, 3, 4, 5]);
    assert!(gguf.tensor("w").is_none());
    assert_message(gguf.require_tensor("w"), "missing tensor w");
}

#[test]
fn copying_all_keys_and_tensors_gives_the_same_file() {
    let dir = TempDir::new().unwrap();
    let mut original = GgufWriter::new();
    original.kv("general.architecture", "qwen35").kv("words", ["a", "b"].as_slice()).alignment(64).unwrap();
    original.tensor("t", GgmlType::I8, &[3], vec![1; 3]).unwrap();
    original.tensor("u", GgmlType::I8, &[3], vec![2; 3]).unwrap();
    let path = save(&dir, "m.gguf", &original);
    let gguf = Gguf::open(&path).unwrap();
    let mut copy = GgufWriter::new();
    gguf.meta().iter().for_each(|(k, v)| _ = copy.kv(k, v.clone()));
    for t in gguf.tensors() {
        copy.tensor(&t.name, t.ggml_type, t.shape(), gguf.data(t).unwrap()).unwrap();
    }
    assert_eq!(fs::read(save(&dir, "copy.gguf", &copy)).unwrap(), fs::read(&path).unwrap());
}

#[test]
fn streamed_tensors_must_keep_their_size() {
    let mut writer = GgufWriter::new();
    writer.tensor_with("t", GgmlType::I8, &[5], |out| out.write_all(b"hello")).unwrap();
    let dir = TempDir::new().unwrap();
    let gguf = Gguf::open(&save(&dir, "m.gguf", &writer)).unwrap();
    assert_eq!(gguf.data(gguf.tensor("t").unwrap()).unwrap(), b"hello");

    writer.tensor_with("u", GgmlType::I8, &[5], |out| out.write_all(b"hell")).unwrap();
    let error = writer.write_to(Vec::new()).unwrap_err();
    assert!(matches!(error, WriteError::Size { expected: 5, found: 4, .. }));
}

#[test]
fn writer_refuses_what_the_reader_would() {
    let mut w = GgufWriter::new();
    assert!(matches!(w.alignment(24).err(), Some(WriteError::Alignment { alignment: 24 })));
    w.tensor("t", GgmlType::I8, &[1], vec![0]).unwrap();
    let mut refused = |name, t, ne: &[u64], len| w.tensor(name, t, ne, vec![0; len]).err().unwrap();
    assert!(matches!(refused("t", GgmlType::I8, &[1], 1), WriteError::Duplicate { .. }));
    assert!(matches!(refused("u", GgmlType::I8, &[], 0), WriteError::DimCount { n: 0, .. }));
    assert!(matches!(refused("u", GgmlType::I8, &[1; 5], 1), WriteError::DimCount { n: 5, .. }));
    assert!(matches!(refused("u", GgmlType::I8, &[0], 0), WriteError::Shape { .. }));
    assert!(matches!(refused("u", GgmlType::Q4_0, &[33], 18), WriteError::Shape { .. }));
    assert!(matches!(
        refused("u", GgmlType::Q4_0, &[32], 17),
        WriteError::Size { expected: 18, found: 17, .. }
    ));
}

#[test]
fn integers_convert_where_they_fit() {
    let gguf = model(|w| {
        w.kv("i32", 7i32).kv("u64", 1u64 << 32).kv("minus", -1i64).kv("f64", 0.5f64).kv("flag", true);
        w.kv("i64s", vec![1i64, -2]).kv("name", "x");
    });
    let meta = gguf.meta();
    assert_eq!(meta.require_u32("i32").unwrap(), 7);
    assert_eq!(meta.u32_or("absent", 3).unwrap(), 3);
    assert_eq!(meta.require_f32("f64").unwrap(), 0.5);
    assert_eq!(meta.f32_or("absent", 0.25).unwrap(), 0.25);
    assert!(meta.bool_or("flag", false).unwrap() && meta.bool_or("absent", true).unwrap());
    assert_eq!(meta.require_str("name").unwrap(), "x");
    assert_eq!(meta.str_opt("absent").unwrap(), None);
    assert_eq!(meta.array_i32("i64s").unwrap().unwrap(), [1, -2]);
    assert_eq!(meta.array_u32("absent").unwrap(), None);

    assert_message(meta.require_u32("u64"), "key u64 is 4294967296, which does not fit u32");
    assert_message(meta.u32_or("minus", 0), "key minus is -1, which does not fit u32");
    assert_message(meta.array_u32("i64s"), "element 1 of key i64s is -2, which does not fit u32");
}

#[test]
fn wrong_types_are_named() {
    let gguf = model(|w| {
        w.kv("name", "x").kv("list", vec![1u32, 2]).kv("n", 1u32);
    });
    let meta = gguf.meta();
    assert_message(meta.require_u32("name"), "key name should be u32 but is string");
    assert_message(meta.u32_or("list", 0), "key list should be u32 but is array of 2 u32");
    assert_message(meta.f32_or("n", 0.0), "key n should be f32 but is u32");
    assert_message(meta.bool_or("n", true), "key n should be bool but is u32");
    assert_message(meta.str_opt("n"), "key n should be string but is u32");
    assert_message(meta.strings("list"), "key list should be array of string but is array of 2 u32");
    assert_message(meta.array_f32("n"), "key n should be array of f32 but is u32");
    assert_message(meta.array_bool("list"), "key list should be array of bool but is array of 2 u32");
    assert_message(meta.require_u32("absent"), "missing key absent");
    assert_message(meta.require_strings("absent"), "missing key absent");
}

#[test]
fn per_layer_values_are_scalars_or_arrays() {
    let gguf = model(|w| {
        w.kv("one", 8u32).kv("three", vec![1u32, 0, 2]).kv("words", ["a"].as_slice());
    });
    let meta = gguf.meta();
    assert_eq!(meta.u32_per_layer("one", 3).unwrap().unwrap(), [8, 8, 8]);
    assert_eq!(meta.u32_per_layer("three", 3).unwrap().unwrap(), [1, 0, 2]);
    assert_eq!(meta.u32_per_layer("absent", 3).unwrap(), None);
    assert_message(meta.u32_per_layer("three", 4), "key three has 3 elements, not 4");
    assert_message(meta.u32_per_layer("words", 1), "key words should be u32 or array of u32");
    assert_message(meta.u32_per_layer("one", usize::MAX), "too many layers");
}

#[test]
fn hostile_names_stay_on_one_short_line() {
    let gguf = model(|w| {
        w.kv("a\nb\u{2028}c\x1b[31m", "x").kv(&"k".repeat(5000), "x");
    });
    assert_message(gguf.meta().require_u32("a\nb\u{2028}c\x1b[31m"), "key a\\nb\\u{2028}c\\u{1b}[31m should");
    let long = gguf.meta().require_u32(&"k".repeat(5000)).unwrap_err();
    assert!(long.to_string().len() < 500);
}

/// Writes `count` shards of one tensor each, letting `change` spoil each.
fn save_split(dir: &TempDir, count: u16, change: impl Fn(u16, &mut GgufWriter<'_>)) -> PathBuf {
    for no in 0..count {
        let mut w = GgufWriter::new();
        w.kv("split.no", no).kv("split.count", count).kv("split.tensors.count", i32::from(count));
        if no == 0 {
            w.kv("general.architecture", "qwen35");
        }
        w.tensor(&format!("t{no}"), GgmlType::I8, &[4], vec![no as u8; 4]).unwrap();
        change(no, &mut w);
        save(dir, &format!("m-{:05}-of-{count:05}.gguf", no + 1), &w);
    }
    dir.path().join(format!("m-00001-of-{count:05}.gguf"))
}

#[test]
fn split_models_open_by_their_first_file() {
    let dir = TempDir::new().unwrap();
    let first = save_split(&dir, 3, |_, _| {});
    let gguf = Gguf::open(&first).unwrap();
    assert_eq!(gguf.meta().require_str("general.architecture").unwrap(), "qwen35");
    assert_eq!(gguf.files().len(), 3);
    assert_eq!(gguf.path(), first);
    for no in 0..3usize {
        let t = gguf.require_tensor(&format!("t{no}")).unwrap();
        assert_eq!((t.shard, gguf.data(t).unwrap()), (no, vec![no as u8; 4]));
    }
}

#[test]
fn incomplete_and_inconsistent_splits_are_refused() {
    let dir = TempDir::new().unwrap();
    let first = save_split(&dir, 3, |_, _| {});
    let second = first.with_file_name("m-00002-of-00003.gguf");
    assert_message(Gguf::open(&second), "is shard 2 of 3; open m-00001-of-00003.gguf instead");

    let renamed = first.with_file_name("renamed.gguf");
    fs::copy(&first, &renamed).unwrap();
    assert_message(Gguf::open(&renamed), "name does not end in -00001-of-00003.gguf");
    fs::copy(&second, &renamed).unwrap();
    assert_message(Gguf::open(&renamed), "open the file ending in -00001-of-00003.gguf instead");

    let third = first.with_file_name("m-00003-of-00003.gguf");
    fs::copy(&second, &third).unwrap();
    assert_message(Gguf::open(&first), "m-00003-of-00003.gguf: split.no is 1 where the split needs 2");
    fs::remove_file(&third).unwrap();
    fs::remove_file(&second).unwrap();
    let both = "2 of 3 shards missing: m-00002-of-00003.gguf, m-00003-of-00003.gguf;";
    assert_message(Gguf::open(&first), both);

    let spoil = |expected, change: &dyn Fn(u16, &mut GgufWriter<'_>)| {
        assert_message(Gguf::open(&save_split(&dir, 2, change)), expected);
    };
    spoil("tensor t0 is also in", &|no, w| {
        if no == 1 {
            w.tensor("t0", GgmlType::I8, &[4], vec![0; 4]).unwrap();
        }
    });
    spoil("split.tensors.count is 9 where the split needs 2", &|_, w| {
        w.kv("split.tensors.count", 9u32);
    });
    spoil("split.count is 7 where the split needs 2", &|no, w| {
        if no == 1 {
            w.kv("split.count", 7u16);
        }
    });
    spoil("too many shards: 65535", &|_, w| {
        w.kv("split.count", u16::MAX);
    });
    spoil("key split.no should be u32 but is string", &|_, w| {
        w.kv("split.no", "zero");
    });
}

#[test]
fn long_lists_of_missing_shards_are_cut() {
    let dir = TempDir::new().unwrap();
    let first = save_split(&dir, 12, |_, _| {});
    for no in 2..=12 {
        fs::remove_file(first.with_file_name(format!("m-{no:05}-of-00012.gguf"))).unwrap();
    }
    assert_message(Gguf::open(&first), "m-00009-of-00012.gguf and 3 more;");
}

#[test]
fn a_header_may_be_longer_than_what_is_read_first() {
    let (dir, mut writer) = (TempDir::new().unwrap(), GgufWriter::new());
    writer.kv("general.architecture", "test");
    // Its end is beyond the second read.
    let long = "x".repeat(limits::MAX_STRING_LEN as usize);
    for key in ["a", "b", "c"] {
        writer.kv(key, long.as_str());
    }
    writer.tensor("t", GgmlType::I8, &[5], b"hello").unwrap();
    let path = save(&dir, "m.gguf", &writer);
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.data(gguf.tensor("t").unwrap()).unwrap(), b"hello");
    assert_eq!(gguf.meta().require_str("c").unwrap(), long);
    // Cut within it, it is truncated wherever reading stopped.
    for len in [33 << 20, (16 << 20) + 1, 16 << 20, (16 << 20) - 1, 1 << 20] {
        fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
        assert_message(Gguf::open(&path), &format!("but the file has {len}"));
    }
}
