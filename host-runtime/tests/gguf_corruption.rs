//! Damaged model files: each is refused with one line that names the file, the cause and a remedy.
//!
//! The table below damages one small valid file by hand; the properties after it damage the file at random.

use std::fs;
use std::path::{Path, PathBuf};

use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf, Value};
use proptest::prelude::*;
use tempfile::TempDir;

/// Where the fixed part of the header keeps its fields.
const VERSION: usize = 4;
const TENSOR_COUNT: usize = 8;
const KEY_COUNT: usize = 16;

/// Type numbers of values, as stored.
const I16: u32 = 3;
const U32: u32 = 4;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// A valid file with a value of each shape that has a length, and tensors that fill its data section.
fn valid_file() -> Vec<u8> {
    let mut w = GgufWriter::new();
    w.alignment(32).unwrap();
    w.kv("general.architecture", "qwen35");
    w.kv("test.flag", true);
    w.kv("test.flags", vec![true, false]);
    w.kv("test.words", ["ab", "cde"].as_slice());
    w.kv("test.longs", vec![1u64, 2, 3]);
    w.kv("test.empty", Vec::<f32>::new());
    w.tensor("norm.a", GgmlType::F32, &[8], vec![1; 32]).unwrap();
    w.tensor("norm.b", GgmlType::F32, &[8], vec![2; 32]).unwrap();
    w.tensor("matrix", GgmlType::Q4_0, &[64, 2], vec![3; 72]).unwrap();
    let mut bytes = Vec::new();
    w.write_to(&mut bytes).unwrap();
    bytes
}

/// Position just after the first occurrence of `name`: a key's value type, or a tensor's dimension count.
fn after(bytes: &[u8], name: &str) -> usize {
    let at = bytes.windows(name.len()).position(|w| w == name.as_bytes());
    at.unwrap_or_else(|| panic!("{name} is not in the file")) + name.len()
}

/// Overwrites bytes at a distance from the end of `name`.
fn set<const N: usize>(bytes: &mut [u8], name: &str, distance: isize, value: [u8; N]) {
    let at = after(bytes, name).checked_add_signed(distance).unwrap();
    bytes[at..at + N].copy_from_slice(&value);
}

fn set8(bytes: &mut [u8], name: &str, distance: isize, value: u8) {
    set(bytes, name, distance, [value]);
}

fn set32(bytes: &mut [u8], name: &str, distance: isize, value: u32) {
    set(bytes, name, distance, value.to_le_bytes());
}

fn set64(bytes: &mut [u8], name: &str, distance: isize, value: u64) {
    set(bytes, name, distance, value.to_le_bytes());
}

/// Overwrites the length stored before `name`.
fn set_len(bytes: &mut [u8], name: &str, value: u64) {
    set64(bytes, name, -8 - name.len() as isize, value);
}

/// Overwrites a number in the header.
fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Positions in a tensor's entry, counted from the end of its name, for a tensor of one dimension.
const NE0: isize = 4;
const TYPE: isize = 12;
const OFFSET: isize = 16;

/// What to damage, how, and what the message must say.
struct Damage(&'static str, fn(&mut Vec<u8>), &'static str);

#[rustfmt::skip] // One line each where it fits: the table is to be read as a table.
const DAMAGES: &[Damage] = &[
    // The beginning of the file.
    Damage("no bytes", |b| b.clear(), "empty file"),
    Damage("cut in the magic", |b| b.truncate(3), "truncated: the header ends at byte 4 but the file has 3"),
    Damage("cut in the version", |b| b.truncate(6), "truncated: the header ends at byte 8 but the file has 6"),
    Damage("cut in the counts", |b| b.truncate(20), "truncated: the header ends at byte 24 but the file has 20"),
    Damage("other magic", |b| b[0] = b'X', "not a GGUF file: it does not begin with GGUF"),
    Damage("Git LFS pointer", |b| *b = b"version https://git-lfs.github.com/spec/v1\n".to_vec(), "not a GGUF file: it is a Git LFS pointer"),
    Damage("web page", |b| *b = b"\n<!DOCTYPE html>\n<html>".to_vec(), "not a GGUF file: it is a web page"),
    Damage("zip archive", |b| *b = b"PK\x03\x04archive".to_vec(), "not a GGUF file: it is a zip archive"),
    Damage("older format", |b| *b = b"tjgg\x03\0\0\0".to_vec(), "not a GGUF file: it is of a format older than GGUF"),
    Damage("safetensors", |b| *b = b"\x40\0\0\0\0\0\0\0{\"a\":{}}".to_vec(), "not a GGUF file: it is a safetensors file"),
    Damage("zeros", |b| b.fill(0), "not a GGUF file: it begins with zeros"),
    Damage("version 0", |b| put32(b, VERSION, 0), "unsupported GGUF version 0"),
    Damage("version 1", |b| put32(b, VERSION, 1), "unsupported GGUF version 1"),
    Damage("version 4", |b| put32(b, VERSION, 4), "unsupported GGUF version 4"),
    Damage("big-endian", |b| b[VERSION..8].reverse(), "big-endian GGUF (version 3)"),

    // Counts in the header.
    Damage("wild tensor count", |b| put64(b, TENSOR_COUNT, u64::MAX), "too many tensors: 18446744073709551615"),
    Damage("wild key count", |b| put64(b, KEY_COUNT, 1 << 60), "too many keys: 1152921504606846976"),
    Damage("tensors that cannot fit", |b| put64(b, TENSOR_COUNT, 100_000), "truncated or corrupt: 100000 tensors cannot fit"),
    Damage("keys that cannot fit", |b| put64(b, KEY_COUNT, 60_000), "truncated or corrupt: 60000 keys cannot fit"),
    Damage("one key too many", |b| put64(b, KEY_COUNT, 8), "the name of tensor 0 is empty"),
    Damage("cut just after the counts", |b| b.truncate(24), "truncated or corrupt: 3 tensors cannot fit in the 0 bytes"),
    Damage("cut in the metadata", |b| b.truncate(after(b, "test.flags")), "truncated: key test.flags ends at byte"),
    Damage("cut in a key", |b| b.truncate(after(b, "test.em")), "truncated: the name of key 6 ends at byte"),
    Damage("cut in a tensor entry", |b| b.truncate(after(b, "norm.b") + OFFSET as usize), "truncated: tensor norm.b ends at byte"),

    // Keys.
    Damage("wild key length", |b| set_len(b, "test.flag", u64::MAX), "the name of key 2 is 18446744073709551615 bytes long"),
    Damage("key beyond the file", |b| set_len(b, "test.flag", 60_000), "truncated: the name of key 2 ends at byte"),
    Damage("empty key", |b| set_len(b, "test.flag", 0), "corrupt: the name of key 2 is empty"),
    Damage("key not UTF-8", |b| set8(b, "test.flag", -2, 0xff), "the name of key 2 is not valid UTF-8 (byte 7 of it)"),
    Damage("key twice", |b| set(b, "test.words", -5, *b"longs"), "key test.longs occurs twice"),

    // Values.
    Damage("unknown value type", |b| set32(b, "test.flag", 0, 13), "key test.flag has unknown value type 13"),
    Damage("bool of 2", |b| set8(b, "test.flag", 4, 2), "key test.flag is a bool stored as 2"),
    Damage("bool of 255 in an array", |b| set8(b, "test.flags", 17, 255), "element 1 of key test.flags is a bool stored as 255"),
    Damage("wild string length", |b| set_len(b, "qwen35", 1 << 40), "key general.architecture is 1099511627776 bytes long"),
    Damage("string beyond the file", |b| set_len(b, "qwen35", 1 << 20), "truncated: key general.architecture ends at byte"),
    Damage("string not UTF-8", |b| set8(b, "qwen35", -1, 0xc3), "key general.architecture is not valid UTF-8"),
    Damage("unknown element type", |b| set32(b, "test.longs", 4, 99), "key test.longs has unknown value type 99"),
    Damage("array of arrays", |b| set32(b, "test.longs", 4, ARRAY), "key test.longs is an array of arrays"),
    Damage("wild array length", |b| set64(b, "test.longs", 8, u64::MAX), "key test.longs has 18446744073709551615 elements"),
    Damage("array beyond the file", |b| set64(b, "test.longs", 8, 1 << 20), "truncated: key test.longs ends at byte"),
    Damage("bools beyond the file", |b| { set32(b, "test.longs", 4, BOOL); set64(b, "test.longs", 8, 1 << 20) }, "truncated: key test.longs ends at byte"),
    Damage("strings beyond the file", |b| set64(b, "test.words", 8, 1 << 20), "truncated: key test.words ends at byte"),
    Damage("element longer than the file", |b| set_len(b, "cde", 1 << 20), "truncated: element 1 of key test.words ends at byte"),
    Damage("wild element length", |b| set_len(b, "cde", 1 << 40), "element 1 of key test.words is 1099511627776 bytes long"),
    Damage("element not UTF-8", |b| set8(b, "cde", -3, 0x80), "element 1 of key test.words is not valid UTF-8 (byte 0 of it)"),

    // Alignment.
    Damage("alignment 0", |b| set32(b, "general.alignment", 4, 0), "general.alignment is 0, not a power of two"),
    Damage("alignment 48", |b| set32(b, "general.alignment", 4, 48), "general.alignment is 48, not a power of two"),
    Damage("alignment 2", |b| set32(b, "general.alignment", 4, 2), "general.alignment is 2, not a power of two from 8"),
    Damage("alignment 2 GiB", |b| set32(b, "general.alignment", 4, 1 << 31), "general.alignment is 2147483648, not a power of two"),
    Damage("alignment of floats", |b| set32(b, "general.alignment", 0, F32), "key general.alignment should be u32 but is f32"),

    // The tensor table.
    Damage("wild tensor name length", |b| set_len(b, "norm.a", 1 << 40), "the name of tensor 0 is 1099511627776 bytes long"),
    Damage("empty tensor name", |b| set_len(b, "norm.a", 0), "the name of tensor 0 is empty"),
    Damage("tensor name not UTF-8", |b| set8(b, "norm.a", -1, 0xff), "the name of tensor 0 is not valid UTF-8"),
    Damage("tensor twice", |b| set8(b, "norm.b", -1, b'a'), "tensor norm.a occurs twice"),
    Damage("no dimensions", |b| set32(b, "norm.a", 0, 0), "tensor norm.a has 0 dimensions, not 1 to 4"),
    Damage("five dimensions", |b| set32(b, "norm.a", 0, 5), "tensor norm.a has 5 dimensions, not 1 to 4"),
    Damage("zero rows", |b| set64(b, "matrix", 12, 0), "tensor matrix has zero elements along ne1"),
    Damage("element count overflows", |b| set64(b, "matrix", 12, u64::MAX / 2), "the size of tensor matrix [64, 9223372036854775807, 1, 1] overflows"),
    Damage("byte count overflows", |b| set64(b, "norm.a", NE0, 1 << 62), "the size of tensor norm.a [4611686018427387904, 1, 1, 1] overflows"),
    Damage("half a block", |b| set64(b, "matrix", NE0, 48), "tensor matrix has rows of 48 values, not whole Q4_0 blocks of 32"),
    Damage("unknown type", |b| set32(b, "norm.a", TYPE, 77), "tensor norm.a has unknown type 77; update hexflash"),
    Damage("removed type", |b| set32(b, "norm.a", TYPE, 31), "tensor norm.a has type 31 (Q4_0_4_4), which ggml has removed; use a newer"),
    Damage("type with larger values", |b| set32(b, "norm.a", TYPE, GgmlType::F64.id()), "tensors norm.a and norm.b overlap"),
    Damage("misaligned offset", |b| set64(b, "norm.b", OFFSET, 33), "tensor norm.b begins at offset 33, not a multiple of 32"),
    Damage("same offset", |b| set64(b, "norm.b", OFFSET, 0), "tensors norm.a and norm.b overlap"),
    Damage("offset beyond the file", |b| set64(b, "norm.b", OFFSET, 1 << 40), "truncated: tensor norm.b ends at byte"),
    Damage("offset that would wrap", |b| set64(b, "norm.b", OFFSET, u64::MAX - 31), "truncated: tensor norm.b ends at byte 18446744073709551615"),
    Damage("rows beyond the file", |b| set64(b, "matrix", 12, 1 << 20), "truncated: tensor matrix ends at byte"),

    // The data.
    Damage("cut before the data", |b| b.truncate(b.len() - 160), "truncated: tensor norm.a ends at byte"),
    // The last tensor has 24 bytes of padding after it, which nothing needs.
    Damage("cut in the last tensor", |b| b.truncate(b.len() - 25), "truncated: tensor matrix ends at byte"),
    // A split model.
    Damage("split count of a string", |b| insert_key(b, "split.count", STRING, b"\x03\0\0\0\0\0\0\0two"), "key split.count should be u32 but is string"),
    Damage("negative split count", |b| insert_key(b, "split.count", I16, b"\xff\xff"), "key split.count is -1, which does not fit u32"),
    Damage("shard without number", |b| insert_key(b, "split.count", I16, b"\x02\0"), "missing key split.no"),
    Damage("last of 4 billion shards", |b| { insert_key(b, "split.no", U32, &[255; 4]); insert_key(b, "split.count", I16, b"\x02\0") }, "is shard 4294967296 of 2; open"),
];

/// Puts a key with a value of the given type and bytes before all other keys.
fn insert_key(bytes: &mut Vec<u8>, key: &str, value_type: u32, value: &[u8]) {
    const FIRST_KEY: usize = 24;
    let len = (key.len() as u64).to_le_bytes();
    let pair = [&len, key.as_bytes(), &value_type.to_le_bytes(), value].concat();
    bytes.splice(FIRST_KEY..FIRST_KEY, pair);
    bytes[KEY_COUNT] += 1;
}

/// A file with a matrix of 64 rows of 256 values, and a norm behind it. The matrix is declared as
/// `ggml_type` and has `bytes` bytes, a multiple of 32.
fn file_of_fork(ggml_type: GgmlType, bytes: usize, with_norm: bool) -> Vec<u8> {
    let mut w = GgufWriter::new();
    w.kv("general.architecture", "qwen3");
    w.tensor("matrix", GgmlType::I8, &[bytes as u64 / 64, 64], vec![3; bytes]).unwrap();
    if with_norm {
        w.tensor("norm", GgmlType::F32, &[8], vec![1; 32]).unwrap();
    }
    let mut file = Vec::new();
    w.write_to(&mut file).unwrap();
    set64(&mut file, "matrix", NE0, 256);
    // Behind two dimensions.
    set32(&mut file, "matrix", TYPE + 8, ggml_type.id());
    file
}

/// Forks of llama.cpp use numbers of ggml's types for other layouts. Nothing but sizes tells.
#[test]
fn layouts_of_forks_are_refused() {
    let (_dir, path) = place();
    let values = 64 * 256;
    let refused = |file: &[u8]| {
        fs::write(&path, file).unwrap();
        let message = Gguf::open(&path).map(|_| ()).unwrap_err().to_string();
        check_form(&message, &path).unwrap();
        assert!(message.contains("fork of llama.cpp; use one made for llama.cpp"), "{message}");
        message
    };
    // A half and 32 bytes for 128 values, where ggml's type has a half and 16 bytes for 64.
    let (of_fork, of_ggml) = (values / 128 * 34, values / 64 * 18);
    for with_norm in [true, false] {
        let message = refused(&file_of_fork(GgmlType::Q2_0, of_fork, with_norm));
        assert!(message.contains(&format!(
            "tensor matrix has {of_fork} bytes of Q2_0 in blocks of 128, where llama.cpp's Q2_0 takes {of_ggml}"
        )));
        fs::write(&path, file_of_fork(GgmlType::Q2_0, of_ggml, with_norm)).unwrap();
        assert_eq!(Gguf::open(&path).unwrap().tensor("matrix").unwrap().size, of_ggml as u64);
    }
    // A half for each 32 bits: more bytes than ggml's type, whose values would be read without a complaint.
    let message = refused(&file_of_fork(GgmlType::Q1_0, values / 32 * 6, true));
    assert!(message.contains(&format!("has {} bytes of Q1_0, where", values / 32 * 6)), "{message}");
    fs::write(&path, file_of_fork(GgmlType::Q1_0, values / 128 * 18, true)).unwrap();
    assert!(Gguf::open(&path).is_ok());
    // A download that ended too early is still one.
    let mut cut = file_of_fork(GgmlType::Q2_0, of_ggml, false);
    cut.truncate(cut.len() - 40);
    fs::write(&path, cut).unwrap();
    let message = Gguf::open(&path).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("truncated: tensor matrix ends at byte"), "{message}");
}

/// A directory of its own for each test, with one file name in it.
fn place() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("model.gguf");
    (dir, path)
}

/// The message must be one line of `file: cause; remedy`.
fn check_form(message: &str, path: &Path) -> Result<(), String> {
    let Some(rest) = message.strip_prefix(&format!("{}: ", path.display())) else {
        return Err(format!("does not begin with the file: {message:?}"));
    };
    if message.chars().any(char::is_control) {
        return Err(format!("is not one plain line: {message:?}"));
    }
    match rest.split_once("; ") {
        Some((cause, remedy)) if !cause.is_empty() && !remedy.is_empty() => Ok(()),
        _ => Err(format!("names no remedy: {message:?}")),
    }
}

#[test]
fn the_undamaged_file_opens() {
    let (_dir, path) = place();
    fs::write(&path, valid_file()).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.data(gguf.tensor("matrix").unwrap()).unwrap(), [3; 72]);
}

#[test]
fn each_damage_is_refused_with_its_cause() {
    let (_dir, path) = place();
    let mut failures = Vec::new();
    for Damage(name, damage, expected) in DAMAGES {
        let mut bytes = valid_file();
        damage(&mut bytes);
        fs::write(&path, &bytes).unwrap();
        match Gguf::open(&path) {
            Ok(_) => failures.push(format!("{name}: accepted")),
            Err(e) => {
                let message = e.to_string();
                if !message.contains(expected) {
                    failures.push(format!("{name}: {message:?} lacks {expected:?}"));
                }
                failures.extend(check_form(&message, &path).err().map(|e| format!("{name}: {e}")));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), DAMAGES.len(), failures.join("\n"));
}

#[test]
fn paths_that_are_no_files_are_refused() {
    let (dir, path) = place();
    let refused = |path: &Path, expected: &str| {
        let message = Gguf::open(path).unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        check_form(&message, path).unwrap();
    };
    refused(&path, "no such file");
    refused(dir.path(), "is a directory");
    #[cfg(unix)]
    refused(Path::new("/dev/null"), "is not a regular file");
    fs::write(&path, b"x").unwrap();
    refused(&path.join("below"), "cannot be read");
}

/// Opens damaged bytes. Whatever is accepted must be safe to use; whatever is refused must say why in due
/// form.
fn survives(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (_dir, path) = place();
    fs::write(&path, bytes).unwrap();
    match Gguf::open(&path) {
        Ok(gguf) => {
            for t in gguf.tensors() {
                prop_assert_eq!(gguf.data(t).unwrap().len() as u64, t.size);
                prop_assert_eq!(t.row_bytes() * (t.elements() / t.ne[0]), t.size);
                prop_assert!(t.offset + t.size <= bytes.len() as u64);
                prop_assert_eq!(gguf.tensor(&t.name), Some(t));
            }
            for (key, value) in gguf.meta().iter() {
                prop_assert_eq!(gguf.meta().get(key).map(Value::kind), Some(value.kind()));
                // Any of these may refuse the value, none may panic.
                let _ = (gguf.meta().u32_opt(key), gguf.meta().f32_opt(key), gguf.meta().str_opt(key));
                let _ = (gguf.meta().u32_per_layer(key, 3), gguf.meta().array_i32(key));
                if let Ok(Some(strings)) = gguf.meta().strings(key) {
                    prop_assert_eq!(strings.iter().count(), strings.len());
                }
            }
            Ok(())
        }
        Err(e) => check_form(&e.to_string(), &path).map_err(TestCaseError::fail),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_in_a_valid_file(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = valid_file();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        survives(&bytes)?;
    }

    #[test]
    fn extreme_numbers_in_a_valid_file(at in any::<prop::sample::Index>(), value in prop::sample::select(
        vec![0, 1, 31, 1 << 16, u64::from(u32::MAX), 1 << 32, 1 << 61, 1 << 63, u64::MAX - 7, u64::MAX]
    )) {
        let mut bytes = valid_file();
        let at = at.index(bytes.len() - 8);
        put64(&mut bytes, at, value);
        survives(&bytes)?;
    }

    #[test]
    fn random_cuts_of_a_valid_file(len in any::<prop::sample::Index>(), bit in any::<prop::sample::Index>()) {
        let mut bytes = valid_file();
        bytes.truncate(len.index(bytes.len()));
        if !bytes.is_empty() {
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        survives(&bytes)?;
    }

    #[test]
    fn random_bytes_after_a_valid_beginning(tail in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = valid_file();
        bytes.truncate(24);
        bytes.extend(tail);
        survives(&bytes)?;
    }
}
