//! How fast weights load. Prints; run by hand, on an idle machine:
//! `cargo test --release -p hexflash --test weight_speed -- --ignored --nocapture`

mod common;

use std::fs::{self, File, FileTimes};
use std::hint::black_box;
use std::io::BufWriter;
use std::time::{Instant, SystemTime};

use common::random_rows;
use hexflash::gguf::writer::GgufWriter;
use hexflash::gguf::{GgmlType, Gguf};
use hexflash::weights::tiles::{TILED, pack_strip, tile_dtype};
use hexflash::weights::{CachePolicy, Form, ImageOptions, WeightImage, WeightSpec};
use hexflash_abi::DType;

const K: u64 = 4096;
const SOURCE_BYTES: u64 = 400 << 20;

/// One strip on one core, the best of many: other programs hardly show in it.
#[test]
#[ignore = "a measurement, not a check"]
fn strip_speed() {
    for &ggml_type in TILED {
        let data = random_rows(ggml_type, K as usize, 32, 1);
        let rows: Vec<&[u8]> = data.chunks_exact(data.len() / 32).collect();
        let group = tile_dtype(ggml_type).and_then(DType::tile_group).unwrap();
        let mut strip = vec![0; group.strip_bytes(K as usize)];
        let best = (0..2000).map(|_| {
            let start = Instant::now();
            pack_strip(ggml_type, K as usize, &rows, black_box(&mut strip));
            start.elapsed()
        });
        let seconds = best.min().unwrap().as_secs_f64();
        println!("{ggml_type}: {:.1} GB/s of model per core", data.len() as f64 / 1e9 / seconds);
    }
}

#[test]
#[ignore = "a measurement, not a check"]
fn repack_speed() {
    for ggml_type in [GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q6_K, GgmlType::F16] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        let row = random_rows(ggml_type, K as usize, 1, 1);
        let n = SOURCE_BYTES / row.len() as u64;
        let mut writer = GgufWriter::new();
        let fill = |out: &mut dyn std::io::Write| (0..n).try_for_each(|_| out.write_all(&row));
        writer.tensor_with("w", ggml_type, &[K, n], fill).unwrap();
        writer.write_to(BufWriter::new(File::create(&path).unwrap())).unwrap();

        let gguf = Gguf::open(&path).unwrap();
        let gigabytes = gguf.tensor("w").unwrap().size as f64 / 1e9;
        let specs = [WeightSpec::new("w", Form::Tiled)];
        let measure = |what: &str, cache: CachePolicy| {
            let start = Instant::now();
            let image =
                WeightImage::load(&gguf, &specs, &ImageOptions { cache, ..Default::default() }).unwrap();
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{ggml_type}: {what}: {:.1} GB/s of model, {:.1} ms",
                gigabytes / seconds,
                seconds * 1e3
            );
            image
        };
        for _ in 0..2 {
            measure("in memory", CachePolicy::Off);
        }
        for _ in 0..2 {
            let _ = fs::remove_file(dir.path().join("model.gguf.hfcache"));
            measure("into the cache", CachePolicy::Beside);
        }
        let image = measure("from the cache", CachePolicy::Beside);
        let times = FileTimes::new().set_modified(SystemTime::now());
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        measure("from the cache, model touched", CachePolicy::Beside);
        let start = Instant::now();
        image.verify().unwrap();
        println!(
            "{ggml_type}: verify: {:.1} GB/s",
            image.bytes() as f64 / 1e9 / start.elapsed().as_secs_f64()
        );
    }
}
