//! A damaged weight cache is refused or rebuilt: never are there wrong weights.

use std::fs::{self, File, FileTimes};
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use arbitrary::{Result, Unstructured};
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::weights::{CachePolicy, Form, ImageOptions, WeightImage, WeightSpec};

use crate::scratch;

/// Where the image starts in a cache.
const IMAGE: usize = 64 * 1024;
/// Bytes of a cache's header, its checksum in the last eight.
const HEADER: usize = 88;

/// A model, what is wanted of it, and its cache as it should be.
struct Fixture {
    model: PathBuf,
    path: PathBuf,
    specs: Vec<WeightSpec>,
    cache: Vec<u8>,
    weights: Weights,
}

/// Labels and bytes.
type Weights = Vec<(String, Vec<u8>)>;

fn weights(image: &WeightImage) -> Weights {
    let data = |entry| image.data(entry).expect("in memory").into_owned();
    let mut weights: Weights =
        image.entries().map(|(label, entry)| (label.to_owned(), data(entry))).collect();
    weights.sort();
    weights
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let folder = scratch::folder("cache");
    let mut writer = GgufWriter::new();
    writer.kv("general.architecture", "test");
    let bytes = |n: usize| (0..n).map(|i| (i * 7 + 3) as u8 & 0x3f).collect::<Vec<_>>();
    writer.tensor("w", GgmlType::Q8_0, &[64, 40], bytes(68 * 40)).expect("its size");
    writer.tensor("norm", GgmlType::F32, &[64], bytes(256)).expect("its size");
    let mut model = Vec::new();
    writer.write_to(&mut model).expect("memory");
    let (path, specs) = (
        folder.join("model.gguf"),
        vec![
            WeightSpec::new("w", Form::Tiled),
            WeightSpec::new("norm", Form::Plain),
            WeightSpec { name: "one".into(), sources: vec![], form: Form::Values(vec![1.0]) },
        ],
    );
    fs::write(&path, model).expect("a folder of our own");
    let fixture = Fixture {
        path: folder.join("model.gguf.hfcache"),
        model: path,
        specs,
        cache: Vec::new(),
        weights: Vec::new(),
    };
    let weights = weights(&fixture.load());
    let cache = fs::read(&fixture.path).expect("the cache was written");
    Fixture { cache, weights, ..fixture }
});

impl Fixture {
    fn load(&self) -> WeightImage {
        let gguf = Gguf::open(&self.model).expect("a valid model");
        let options = ImageOptions { cache: CachePolicy::Beside, ..ImageOptions::default() };
        WeightImage::load(&gguf, &self.specs, &options).expect("whatever the cache is")
    }
}

/// Bytes choose the damage.
pub fn check(data: &[u8]) {
    let (f, mut u) = (&*FIXTURE, Unstructured::new(data));
    let mut cache = f.cache.clone();
    while !u.is_empty() && damage(&mut u, &mut cache).is_ok() {}
    fs::write(&f.path, &cache).expect("a folder of our own");
    if data.first().is_some_and(|b| b % 4 == 3) {
        // The model's times differ from those in the cache: its content decides.
        let touched = SystemTime::now() + Duration::from_secs(1);
        let model = File::options().write(true).open(&f.model).expect("our own file");
        model.set_times(FileTimes::new().set_modified(touched)).expect("our own file");
    }
    let image = f.load();
    assert!(weights(&image) == f.weights, "wrong weights: {:?}", image.notes());
    // A cache is reused only if it is what was written, but for the stamps in its header.
    assert!(
        image.repacked_bytes() > 0 || cache.get(HEADER..) == f.cache.get(HEADER..),
        "damaged, and reused"
    );
    // What is there now is good, unless it was left alone as somebody else's.
    assert!(weights(&f.load()) == f.weights);
    let _ = fs::remove_file(&f.path);
}

/// One change of the file.
fn damage(u: &mut Unstructured<'_>, cache: &mut Vec<u8>) -> Result<()> {
    let kind: u8 = u.arbitrary()?;
    let value: u8 = u.arbitrary()?;
    match kind % 6 {
        0 | 1 => {
            let at = usize::from(u.int_in_range(0..=HEADER as u8 - 1)?);
            cache.get_mut(at).into_iter().for_each(|byte| *byte = value);
        }
        2 => {
            let at = IMAGE + usize::from(u.arbitrary::<u16>()?);
            cache.get_mut(at).into_iter().for_each(|byte| *byte ^= value);
        }
        3 => cache.truncate(u.arbitrary::<u32>()? as usize % (cache.len() + 1)),
        4 => cache.resize(cache.len() + usize::from(value), value),
        // The header is right in itself.
        _ => {
            if let Some((header, rest)) = cache.split_at_mut_checked(HEADER - 8)
                && rest.len() >= 8
            {
                rest[..8].copy_from_slice(&xxhash_rust::xxh3::xxh3_64(header).to_le_bytes());
            }
        }
    }
    Ok(())
}
