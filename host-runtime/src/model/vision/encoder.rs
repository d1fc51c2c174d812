//! An encoder of pictures: its hyper-parameters, its weights, and its two programs.

use std::ops::Range;

use hexflash_abi::program::TensorFlags;
use hexflash_abi::{DType, Op};

use super::clamps::Clamps;
use super::layer::VitLayer;
use super::norm::{norm_of, plan_norm};
use super::positions::{BIAS, Positions, TABLE, TableKind};
use super::{gemma3, gemma4, idefics3, lfm2};
use crate::gguf::Gguf;
use crate::model::decoder::Decoder;
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::io::TileWidths;
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::keys::{Keys, LIMIT, MAX_BLOCKS};
use crate::model::scope::Scope;
use crate::model::tensors::{WeightPlan, WeightPlanner};
use crate::record::{RecordError, Tensor};
use crate::weights::{Form, WeightError};

/// The architecture of an encoder's file.
pub(in crate::model) const ARCH: &str = "clip";
/// The product with the patches.
const PATCHES: &str = "v.patch_embd.weight";
/// The norms before and behind the layers, of which a file has either, both or none.
const PRE_NORM: &str = "v.pre_ln";
const POST_NORM: &str = "v.post_ln";
/// The rows that the layers give, kept for the projector: {n_embd, patches}.
const STREAM: &str = "stream";
/// Longest side, in pixels, that a picture may be brought to: models have 2,048.
const LONGEST_EDGE: u32 = 8192;
/// Largest side of a patch, in pixels, and most patches along a side of what becomes one row: models have 16
/// and 4.
const MAX_PATCH: u32 = 64;
const MAX_MERGE: u32 = 8;
/// Colours of a picture.
const CHANNELS: u32 = 3;

/// Maker of rows for the text model from rows of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projector {
    /// Gemma 3: the mean of squares of rows, and a matrix.
    Gemma3,
    /// Gemma 4 E2B and E4B: the mean of squares of rows, and a matrix.
    Gemma4,
    /// Idefics 3 and SmolVLM: a matrix.
    Idefics3,
    /// LFM2-VL: an MLP, whose inner width this is.
    Lfm2 {
        /// Width between its matrices.
        inside: u32,
    },
}

impl Projector {
    /// Their names in files.
    const NAMES: [&'static str; 4] = ["gemma3", "gemma4v", "idefics3", "lfm2"];

    /// Reads which one it is.
    fn read(gguf: &Gguf, keys: &Keys<'_>) -> Result<Self, ModelError> {
        let own = keys.meta().str_opt(&keys.key("vision.projector_type"))?;
        match own.map_or_else(|| keys.meta().require_str(&keys.key("projector_type")), Ok)? {
            "gemma3" => Ok(Self::Gemma3),
            "gemma4v" => Ok(Self::Gemma4),
            "idefics3" => Ok(Self::Idefics3),
            "lfm2" => Ok(Self::Lfm2 { inside: rows_of(gguf, "mm.1.weight")? }),
            other => {
                let known = Self::NAMES.join(", ");
                let reason = format!("projector \"{other}\" is not supported; this version runs {known}");
                Err(ModelError::Encoder { path: gguf.path().to_path_buf(), reason })
            }
        }
    }

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gemma3 => Self::NAMES[0],
            Self::Gemma4 => Self::NAMES[1],
            Self::Idefics3 => Self::NAMES[2],
            Self::Lfm2 { .. } => Self::NAMES[3],
        }
    }

    /// Width of the rows that it gives for the text model.
    fn n_out(self, gguf: &Gguf) -> Result<u32, ModelError> {
        match self {
            Self::Gemma3 => side_of(gguf, gemma3::MATRIX, 0),
            Self::Gemma4 => rows_of(gguf, gemma4::LAST),
            Self::Idefics3 => rows_of(gguf, "mm.model.fc.weight"),
            Self::Lfm2 { .. } => rows_of(gguf, "mm.2.weight"),
        }
    }

    /// Most patches of a tile.
    const fn max_patches(self) -> u32 {
        match self {
            // The square of all its models: 896 pixels, 14 to a patch.
            Self::Gemma3 => 4096,
            // 280 rows of 3 x 3 patches. llama.cpp makes up to 1,120, which takes four times the memory.
            Self::Gemma4 => 2520,
            // Models have no larger tiles but for pictures that are thirty times as wide as they are high.
            Self::Idefics3 | Self::Lfm2 { .. } => 1024,
        }
    }

    /// Whether tiles are all of one size.
    const fn has_one_size(self) -> bool {
        matches!(self, Self::Gemma3 | Self::Idefics3)
    }

    /// Whether each row of a tile sees all of the tile in the text model, those behind it, too, where rows
    /// have so many values.
    const fn is_seen_whole(self, n_out: u32) -> bool {
        match self {
            Self::Gemma3 => true,
            // E2B and E4B go from row to row, as llama.cpp has it.
            Self::Gemma4 => !matches!(n_out, 1536 | 2560),
            Self::Idefics3 | Self::Lfm2 { .. } => false,
        }
    }
}

/// An encoder of pictures.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoder {
    /// Maker of rows for the text model.
    pub projector: Projector,
    /// Side of a patch, in pixels.
    pub patch: u32,
    /// Side of a square tile, in pixels.
    pub image_size: u32,
    /// Patches that become one row, along each side.
    pub merge: u32,
    /// The longer side to which a picture is brought before it is cut into tiles, in pixels; 0 for none.
    pub longest_edge: u32,
    /// Mean of each colour, of 0 to 1, which is taken off.
    pub mean: [f32; 3],
    /// Deviations of colours, which they are divided by then.
    pub std: [f32; 3],
    /// Width of the text model's stream.
    pub n_out: u32,
    /// Side of the square that the table of positions is for, in patches.
    positions: u32,
    layer: VitLayer,
    n_layer: u32,
    clamps: Clamps,
}

impl Encoder {
    /// Whether this version has encoders for models of an architecture, so that it is worth to look for one.
    pub fn may_be_for(arch: &str) -> bool {
        ["gemma3", "gemma4", "lfm2", "llama"].contains(&arch)
    }

    /// Reads the hyper-parameters, and checks that the encoder was made for `target`.
    ///
    /// # Errors
    /// Not an encoder, one of a projector that this version does not run, a missing key, or another model's.
    pub fn read(gguf: &Gguf, target: &Decoder) -> Result<Self, ModelError> {
        let keys = Keys::new(gguf)?;
        if keys.arch() != ARCH {
            let reason = format!("architecture \"{}\" is no encoder of pictures (clip)", keys.arch());
            return Err(ModelError::Encoder { path: gguf.path().to_path_buf(), reason });
        }
        let projector = Projector::read(gguf, &keys)?;
        check_target(gguf, projector, target)?;
        let [patch, image_size, merge] = sizes(&keys, projector)?;
        let n_layer = keys.require("vision.block_count")?;
        keys.at_most("vision.block_count", n_layer, MAX_BLOCKS)?;
        let longest_edge = keys.meta().u32_or(&keys.key("vision.preproc_image_size"), 0)?;
        keys.at_most("vision.preproc_image_size", longest_edge, LONGEST_EDGE)?;
        let gemma4 = projector == Projector::Gemma4;
        let layer = VitLayer::read(&keys, gemma4)?;
        let clamps = if gemma4 { Clamps::read(gguf)? } else { Clamps::default() };
        // Of tiles that are all alike, or of any square; of Gemma 4 one for columns, and one for lines.
        let (tile, rows) = (image_size / patch, rows_of(gguf, TABLE)?);
        let positions = if gemma4 { rows } else { rows.isqrt() };
        if !gemma4 && positions * positions != rows || (projector.has_one_size() && positions != tile) {
            return Err(ModelError::Shape {
                path: gguf.path().to_path_buf(),
                name: TABLE.to_owned(),
                found: gguf.require_tensor(TABLE)?.shape().to_vec(),
                expected: vec![layer.n_embd.into(), (tile * tile).into()],
            });
        }
        let [mut mean, mut std] = [colours(&keys, "vision.image_mean")?, colours(&keys, "vision.image_std")?];
        if gemma4 {
            // Its graph makes 2 x - 1 of what is left then.
            for (mean, std) in mean.iter_mut().zip(&mut std) {
                *std /= 2.0;
                *mean += *std;
            }
        }
        Ok(Self {
            projector,
            patch,
            image_size,
            merge,
            longest_edge,
            mean,
            std,
            n_out: target.n_embd,
            positions,
            layer,
            n_layer,
            clamps,
        })
    }

    /// Width of the stream.
    pub fn n_embd(&self) -> u32 {
        self.layer.n_embd
    }

    /// Layers.
    pub fn n_layer(&self) -> u32 {
        self.n_layer
    }

    /// Values of a patch.
    pub fn patch_values(&self) -> u32 {
        CHANNELS * self.patch * self.patch
    }

    /// Patches that become one row.
    pub fn patches_per_row(&self) -> u32 {
        self.merge * self.merge
    }

    /// Most patches of a tile.
    pub fn max_patches(&self) -> u32 {
        let tile = self.image_size / self.patch;
        if self.projector.has_one_size() { tile * tile } else { self.projector.max_patches() }
    }

    /// Most patches along a side of a tile.
    pub fn max_side(&self) -> u32 {
        if self.projector == Projector::Gemma4 { self.positions } else { self.max_patches() }
    }

    /// Most rows of a tile.
    pub fn max_rows(&self) -> u32 {
        self.max_patches() / self.patches_per_row()
    }

    /// Rows of a tile that the text model must take in one step, as each of them sees all of it; 0 where they
    /// are as tokens, which see those before them.
    pub fn rows_at_once(&self) -> u32 {
        if self.projector.is_seen_whole(self.n_out) { self.max_rows() } else { 0 }
    }

    /// How large tiles are, for steps of up to `batch` rows.
    pub fn tile_widths(&self, batch: u32) -> TileWidths {
        TileWidths {
            patch_values: self.patch_values(),
            n_embd: self.n_embd(),
            patches: self.max_patches(),
            n_out: self.n_out,
            rows: self.max_rows().max(batch),
        }
    }

    /// Width of what the projector reads.
    fn merged(&self) -> u32 {
        self.layer.n_embd * self.patches_per_row()
    }

    /// The weights, with their shapes checked against the file.
    ///
    /// # Errors
    /// A tensor is missing, has another shape, or is not one that the graph uses.
    pub fn weights(&self, gguf: &Gguf) -> Result<WeightPlan, ModelError> {
        let mut plan = WeightPlanner::new(gguf);
        let (all, n_embd) = (Scope::ENCODER, self.layer.n_embd);
        plan.add(all, PATCHES, &[self.patch, self.patch, CHANNELS, n_embd], Form::Filters)?;
        // The host adds them up.
        match self.projector {
            Projector::Gemma4 => plan.read_by_host(TABLE, &[n_embd, self.positions, 2])?,
            _ => plan.read_by_host(TABLE, &[n_embd, self.positions * self.positions])?,
        }
        if plan.has(all, BIAS) {
            plan.read_by_host(BIAS, &[n_embd])?;
        }
        for norm in [PRE_NORM, POST_NORM] {
            if plan.has(all, &format!("{norm}.weight")) {
                plan_norm(&mut plan, all, norm, n_embd)?;
            }
        }
        for i in self.layers() {
            self.layer.weights(&mut plan, &self.clamps, all.layer(i))?;
        }
        let shape = [self.merged(), self.n_out];
        match self.projector {
            Projector::Gemma3 => gemma3::weights(&mut plan, [n_embd, self.n_out])?,
            Projector::Gemma4 => gemma4::weights(&mut plan, &self.clamps, [n_embd, self.n_out])?,
            Projector::Idefics3 => idefics3::weights(&mut plan, shape)?,
            Projector::Lfm2 { inside } => lfm2::weights(&mut plan, shape, inside)?,
        }
        match plan.unused(|_| false) {
            None => Ok(plan.finish()),
            Some(name) => {
                let (path, name) = (gguf.path().to_path_buf(), name.to_owned());
                Err(ModelError::Superfluous { path, name })
            }
        }
    }

    fn layers(&self) -> Range<usize> {
        0..self.n_layer as usize
    }

    /// The table of positions in its file, whose shape [`weights`](Self::weights) checks.
    ///
    /// # Errors
    /// It is of a type that is no plain number, or has a value that is none.
    pub fn positions(&self, gguf: &Gguf) -> Result<Positions, WeightError> {
        let kind = match self.projector {
            Projector::Gemma4 => TableKind::ColumnsAndLines,
            _ => TableKind::Square,
        };
        Positions::read(gguf, kind, [self.layer.n_embd, self.positions], self.merge)
    }

    /// Declares what it keeps on the device while it works on a tile.
    ///
    /// # Errors
    /// It is more than programs can describe.
    pub fn keep(&self, plan: &mut KeptPlanner) -> Result<(), RecordError> {
        let n = self.max_patches();
        self.layer.keep(plan, n)?;
        let stream = [self.layer.n_embd, n, 1, 1];
        plan.keep(Scope::ENCODER, STREAM, Purpose::Encoder, (DType::F32, stream))
    }

    /// Records the layers: patches{3 p p, n} and what is [added](super::Positions) to their rows, {n_embd,
    /// n}, to the stream that is kept. The token axis is that of patches. `places` are as
    /// [`has_places`](Self::has_places) says.
    pub(in crate::model) fn encode(
        &self,
        g: &mut Graph<'_>,
        [patches, positions]: [Tensor; 2],
        places: Option<[Tensor; 2]>,
    ) {
        let (all, eps) = (Scope::ENCODER, self.layer.eps);
        let mut x = g.linear(patches, &all.label(PATCHES));
        g.update(Op::Add, x, positions);
        let has = |g: &Graph<'_>, norm: &str| g.has_weight(&all.label(&format!("{norm}.weight")));
        if has(g, PRE_NORM) {
            x = norm_of(g, self.layer.norm(), (all, PRE_NORM), x, eps);
        }
        for i in self.layers() {
            self.layer.record(g, &self.clamps, all.layer(i), x, places);
        }
        if has(g, POST_NORM) {
            x = norm_of(g, self.layer.norm(), (all, POST_NORM), x, eps);
        }
        let stream = g.kept(&all.label(STREAM));
        g.rec.tokens_on(stream, 1);
        g.rec.op(Op::Cpy, &[x], stream);
    }

    /// Whether it reads the columns and lines of patches.
    pub fn has_places(&self) -> bool {
        self.layer.gemma4
    }

    /// Records the projector: the stream that is kept, to rows{n_out, n}. The token axis is that of rows.
    pub(in crate::model) fn project(&self, g: &mut Graph<'_>, rows: Tensor) {
        let merged = [self.merged(), g.t(), 1, 1];
        let x = g.kept_part(&Scope::ENCODER.label(STREAM), 0, merged, TensorFlags::empty());
        g.rec.tokens_on(x, 1);
        match self.projector {
            Projector::Gemma3 => {
                gemma3::record(g, x, rows, [self.n_embd(), self.patches_per_row()], self.layer.eps);
            }
            Projector::Gemma4 => {
                let sizes = [self.n_embd(), self.patches_per_row()];
                gemma4::record(g, &self.clamps, [x, rows], sizes, self.layer.eps);
            }
            Projector::Idefics3 => idefics3::record(g, x, rows),
            Projector::Lfm2 { .. } => lfm2::record(g, x, rows),
        }
    }
}

/// Rows of a matrix.
fn rows_of(gguf: &Gguf, name: &str) -> Result<u32, ModelError> {
    side_of(gguf, name, 1)
}

/// Length of an axis of a matrix.
fn side_of(gguf: &Gguf, name: &str, axis: usize) -> Result<u32, ModelError> {
    let tensor = gguf.require_tensor(name)?;
    let side = u32::try_from(tensor.ne[axis]).ok().filter(|side| (1..=LIMIT).contains(side));
    side.ok_or_else(|| {
        let mut expected = tensor.ne[..2].to_vec();
        expected[axis] = LIMIT.into();
        let (path, name) = (gguf.path().to_path_buf(), name.to_owned());
        ModelError::Shape { path, name, found: tensor.shape().to_vec(), expected }
    })
}

/// Refuses a text model that cannot take the rows.
fn check_target(gguf: &Gguf, projector: Projector, target: &Decoder) -> Result<(), ModelError> {
    let rows = projector.n_out(gguf)?;
    let wrong = if target.per_layer.is_some() && projector != Projector::Gemma4 {
        "its layers read each token besides the stream".to_owned()
    } else if !target.is_causal() {
        "it writes no text".to_owned()
    } else if projector.is_seen_whole(rows) && !target.has_attention_alone() {
        "its layers go from token to token, and see no picture as a whole".to_owned()
    } else if rows != target.n_embd {
        format!("its rows have {} values, and those of the encoder {rows}", target.n_embd)
    } else {
        return Ok(());
    };
    let reason = format!("it was made for another model than this ({}): {wrong}", target.arch);
    Err(ModelError::Encoder { path: gguf.path().to_path_buf(), reason })
}

/// Sides of a patch and of a tile in pixels, and patches that become one row along each side.
fn sizes(keys: &Keys<'_>, projector: Projector) -> Result<[u32; 3], ModelError> {
    const MERGE: &str = "vision.projector.scale_factor";
    let [patch, image_size] =
        ["patch_size", "image_size"].map(|name| keys.require(&format!("vision.{name}")));
    let (patch, image_size) = (patch?, image_size?);
    let default = match projector {
        Projector::Gemma3 => 4,
        Projector::Gemma4 | Projector::Idefics3 => 3,
        Projector::Lfm2 { .. } => 2,
    };
    let merge = keys.or(MERGE, default)?;
    match projector {
        Projector::Gemma3 | Projector::Gemma4 | Projector::Idefics3 => {
            keys.at_most("vision.patch_size", patch, MAX_PATCH)?;
            keys.at_most(MERGE, merge, MAX_MERGE)?;
        }
        // Its tiles are of one size in pixels, which is that of all its models.
        Projector::Lfm2 { .. } => {
            keys.only("vision.patch_size", 16)?;
            keys.only(MERGE, 2)?;
        }
    }
    // Tiles of Gemma 4 have the size of the picture; nothing is of this one.
    if projector == Projector::Gemma4 && patch > 0 && merge > 0 {
        return Ok([patch, image_size, merge]);
    }
    let (tile, most) = (image_size / patch, projector.max_patches());
    if image_size.is_multiple_of(patch * merge) && tile.saturating_mul(tile) <= most {
        return Ok([patch, image_size, merge]);
    }
    let most = format!("a multiple of {} with at most {most} patches", patch * merge);
    Err(keys.bad("vision.image_size", image_size, &most))
}

/// Three finite numbers, one for each colour, which nothing is divided by if they are 0.
fn colours(keys: &Keys<'_>, name: &str) -> Result<[f32; 3], ModelError> {
    let values = keys.meta().array_f32(&keys.key(name))?.ok_or_else(|| keys.missing(name))?;
    let sound = |value: &f32| value.is_finite() && (!name.ends_with("std") || *value > 0.0);
    match values.first_chunk() {
        Some(three) if three.iter().all(sound) => Ok(*three),
        _ => Err(keys.bad(name, format!("{values:?}"), "a number for each of three colours")),
    }
}
