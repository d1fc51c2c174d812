//! A program in a form that people and tools can read: its ops, what they read and write, where it lies, and
//! how many bytes that moves.

use std::fmt;

use hexflash_abi::dtype::{ActivationRow, TILE_ROWS};
use hexflash_abi::op::{Dst, Operand, OperandSpec, Src, get_rows, kv_append, set_rows};
use hexflash_abi::program::{OpDesc, TensorDesc, TensorFlags};
use hexflash_abi::validate::{BufferInfo, Program};
use hexflash_abi::{BufferId, DType, Fault, Op, TensorIndex};
use hexflash_dsp::plan::{OpShapes, Resources};
use hexflash_dsp::table;

use super::error::RecordError;
use super::recorded::{Homes, Recorded};
use super::tensor::{Home, Tensor};

/// A recorded program, in words and numbers.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Listing {
    /// What the program is called.
    pub name: String,
    /// Length of the token axis.
    pub max_tokens: u32,
    /// Positions of the caches.
    pub n_ctx: u32,
    /// Its numerics class.
    pub numerics: &'static str,
    /// The ops, session by session, in order.
    pub ops: Vec<OpLine>,
    /// Their sums.
    pub totals: Totals,
}

/// An op of a [`Listing`].
#[derive(Clone, Debug, serde::Serialize)]
pub struct OpLine {
    /// Its number in the session, as faults give it.
    pub index: usize,
    /// The session that runs it.
    pub session: usize,
    /// The part of the program whose cost it counts in.
    pub part: u16,
    /// Its name.
    pub op: &'static str,
    /// The kernel that runs it.
    pub kernel: &'static str,
    /// What it reads and writes, inputs first.
    pub operands: Vec<OperandLine>,
    /// Bytes of VTCM, of all workers together.
    pub vtcm_bytes: u64,
    /// Bytes of weights that it reads.
    pub weight_bytes: u64,
    /// Bytes of everything else that it reads and writes, for a full step at the end of the context.
    pub data_bytes: u64,
}

/// An operand of an op of a [`Listing`].
#[derive(Clone, Debug, serde::Serialize)]
pub struct OperandLine {
    /// Its name in the op table.
    pub operand: &'static str,
    /// Name of the tensor: of a weight as in the file, of an activation `%` and a number, else of its buffer.
    pub tensor: String,
    /// Element type.
    pub dtype: &'static str,
    /// Elements per axis.
    pub ne: [u32; 4],
    /// Whether the op writes it.
    pub written: bool,
    /// Name of its buffer.
    pub buffer: String,
    /// First byte in the buffer.
    pub offset: u64,
}

/// Sums over the ops of a [`Listing`].
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Totals {
    /// Ops.
    pub ops: usize,
    /// Tensors that they name.
    pub tensors: usize,
    /// Bytes of VTCM of the op that needs most.
    pub vtcm_bytes: u64,
    /// Bytes of weights that are read.
    pub weight_bytes: u64,
    /// Bytes of everything else that is read and written, for a full step at the end of the context.
    pub data_bytes: u64,
    /// Bytes of activation memory.
    pub activation_bytes: u64,
}

impl Recorded {
    /// The program with everything that is known of it before it runs: `buffer` gives the name and the size
    /// of each buffer.
    ///
    /// # Errors
    /// What validation and planning find.
    pub fn list(
        &self,
        name: &str,
        homes: &Homes,
        resources: Resources,
        buffer: impl Fn(BufferId) -> Option<(String, BufferInfo)>,
    ) -> Result<Listing, RecordError> {
        let mut ops: Vec<OpLine> = Vec::with_capacity(self.ops());
        let mut tensors = 0;
        for session in (0..super::placement::MAX_SESSIONS).filter(|&session| self.runs_in(session)) {
            let parts = self.assemble(session, homes)?;
            let program = parts.program();
            let named = |fault: Fault| {
                let site = self.sites(session).get(fault.op.0 as usize).cloned();
                RecordError::Invalid { site, fault }
            };
            program.check(|id| buffer(id).map(|(_, info)| info)).map_err(named)?;
            tensors += program.tensors.len();
            let lister = Lister { recorded: self, program, numbers: &parts.numbers, buffer: &buffer };
            for (index, desc) in program.ops.iter().enumerate() {
                let line = lister.op(session, index, desc, resources);
                ops.push(line.map_err(|fault| named(fault.at(index)))?);
            }
        }
        let sum = |of: fn(&OpLine) -> u64| ops.iter().map(of).sum();
        let totals = Totals {
            ops: ops.len(),
            tensors,
            vtcm_bytes: ops.iter().map(|op| op.vtcm_bytes).max().unwrap_or(0),
            weight_bytes: sum(|op| op.weight_bytes),
            data_bytes: sum(|op| op.data_bytes),
            activation_bytes: self.activation_bytes,
        };
        let numerics = self.numerics.name();
        Ok(Listing {
            name: name.to_owned(),
            max_tokens: self.max_tokens,
            n_ctx: self.n_ctx,
            numerics,
            ops,
            totals,
        })
    }
}

/// What the lines of a session's ops are made from.
struct Lister<'a, B> {
    recorded: &'a Recorded,
    program: Program<'a>,
    /// The recorder's number of each tensor of the program.
    numbers: &'a [usize],
    buffer: &'a B,
}

impl<B: Fn(BufferId) -> Option<(String, BufferInfo)>> Lister<'_, B> {
    fn op(&self, session: usize, index: usize, desc: &OpDesc, resources: Resources) -> Result<OpLine, Fault> {
        let unknown = Fault::new(hexflash_abi::ErrorCode::UnknownOp, desc.opcode.into());
        let op = Op::parse(desc.opcode).ok_or(unknown)?;
        let spec = op.spec();
        let plan = table::plan(op, &OpShapes::of(&self.program, desc, resources))?;
        let inputs = spec.src.iter().enumerate().map(|(i, spec)| (Src::at(i).number(), spec, desc.src[i]));
        let outputs = spec.dst.iter().enumerate().map(|(i, spec)| (Dst::at(i).number(), spec, desc.dst[i]));
        let (mut operands, mut weight_bytes, mut data_bytes) = (Vec::new(), 0, 0);
        for (number, spec, tensor) in inputs.chain(outputs) {
            let Some(t) = self.program.tensor(tensor) else { continue };
            let bytes = self.moved(op, desc, number, t);
            if t.flags & TensorFlags::CONST.bits() != 0 {
                weight_bytes += bytes;
            } else {
                data_bytes += bytes;
            }
            operands.push(self.operand(spec, tensor, t));
        }
        Ok(OpLine {
            index,
            session,
            part: desc.part,
            op: op.name(),
            kernel: plan.variant.name(),
            operands,
            vtcm_bytes: plan.vtcm.total(resources.workers).unwrap_or(0) as u64,
            weight_bytes,
            data_bytes,
        })
    }

    fn operand(&self, spec: &OperandSpec, index: TensorIndex, t: &TensorDesc) -> OperandLine {
        let number = self.numbers[usize::from(index.0)];
        let id = self.program.buffers[usize::from(t.buffer)].buffer;
        let buffer = (self.buffer)(id).map_or_else(|| format!("buffer {id}"), |(name, _)| name);
        let tensor = match (self.recorded.names.get(&Tensor(number)), self.recorded.tensors[number].home) {
            (Some(name), _) => name.to_string(),
            (None, Home::Activation(activation)) => format!("%{activation}"),
            (None, Home::Kept) => "kept".to_owned(),
            (None, Home::Buffer(_)) => buffer.clone(),
        };
        OperandLine {
            operand: spec.name,
            tensor,
            dtype: DType::parse(t.dtype).map_or("?", DType::name),
            ne: t.ne,
            written: spec.written,
            buffer,
            offset: t.offset,
        }
    }

    /// Bytes of an operand that the op reads or writes: all of them, but of what is addressed by rows only
    /// those.
    fn moved(&self, op: Op, desc: &OpDesc, number: u32, t: &TensorDesc) -> u64 {
        let rows_like = |other: TensorIndex, rows: fn(&TensorDesc) -> u64| {
            self.program.tensor(other).map_or(0, |other| rows(other) * row_bytes(t))
        };
        let ids = |ids: &TensorDesc| ids.ne.iter().map(|&n| u64::from(n)).product();
        let rows = |x: &TensorDesc| x.ne[1..].iter().map(|&n| u64::from(n)).product();
        match op {
            Op::GetRows if number == get_rows::TABLE.number() => {
                rows_like(get_rows::IDS.of(&desc.src, &desc.dst), ids)
            }
            Op::SetRows if number == set_rows::Y.number() => {
                rows_like(set_rows::X.of(&desc.src, &desc.dst), rows)
            }
            Op::KvAppend if number == kv_append::K_CACHE.number() => {
                rows_like(kv_append::K.of(&desc.src, &desc.dst), rows)
            }
            Op::KvAppend if number == kv_append::V_CACHE.number() => {
                rows_like(kv_append::V.of(&desc.src, &desc.dst), rows)
            }
            _ => row_bytes(t) * rows(t),
        }
    }
}

/// Bytes of a row without gaps; of a tiled type, its share of a strip.
fn row_bytes(t: &TensorDesc) -> u64 {
    let k = t.ne[0] as usize;
    let Some(dtype) = DType::parse(t.dtype) else { return 0 };
    let bytes = match (dtype.tile_group(), dtype.row_block()) {
        (Some(group), _) => group.strip_bytes(k) / TILE_ROWS,
        (None, Some(_)) => dtype.row_bytes(k),
        (None, None) => ActivationRow::new(k).bytes(),
    };
    bytes as u64
}

/// Bytes in a unit that people can read.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..=9_999 => write!(f, "{bytes} B"),
            bytes @ ..=9_999_999 => write!(f, "{:.1} KiB", bytes as f64 / 1024.0),
            bytes => write!(f, "{:.1} MiB", bytes as f64 / 1_048_576.0),
        }
    }
}

/// `{ne0,ne1,..}` without the ones at the end.
struct Axes([u32; 4]);

impl fmt::Display for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().rposition(|&n| n != 1).map_or(1, |last| last + 1);
        let texts: Vec<_> = self.0[..used].iter().map(u32::to_string).collect();
        write!(f, "{{{}}}", texts.join(","))
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, max_tokens, n_ctx, numerics, .. } = self;
        let tokens = if *max_tokens == 1 { "1 token" } else { &format!("up to {max_tokens} tokens") };
        writeln!(f, "program {name}: {tokens}, {n_ctx} positions, {numerics}")?;
        let several = self.ops.iter().any(|op| op.session > 0);
        for op in &self.ops {
            if op.index == 0 && several {
                writeln!(f, "session {}", op.session)?;
            }
            let moved = format!("weights {}, data {}", Size(op.weight_bytes), Size(op.data_bytes));
            writeln!(
                f,
                "{:>5} {:<16} {:<24} {moved}, VTCM {}",
                op.index,
                op.op,
                op.kernel,
                Size(op.vtcm_bytes)
            )?;
            for o in &op.operands {
                let arrow = if o.written { "->" } else { "" };
                let (operand, tensor, dtype) = (o.operand, &o.tensor, o.dtype);
                let (ne, place) = (Axes(o.ne).to_string(), format!("{}+{:#x}", o.buffer, o.offset));
                writeln!(f, "      {arrow:>2} {operand:<10} {tensor:<32} {dtype:<8} {ne:<20} {place}")?;
            }
        }
        let t = &self.totals;
        writeln!(
            f,
            "total {} ops, {} tensors: weights {}, data {} at the end of the context, activations {}, VTCM \
             up to {}",
            t.ops,
            t.tensors,
            Size(t.weight_bytes),
            Size(t.data_bytes),
            Size(t.activation_bytes),
            Size(t.vtcm_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use hexflash_abi::program::{Numerics, TensorFlags};
    use hexflash_abi::validate::BufferInfo;
    use hexflash_abi::{BufferId, DType, Op};
    use hexflash_dsp::plan::{Resources, Units};

    use super::super::{Homes, RecordError, Recorder};

    const WEIGHTS: BufferId = BufferId(0);
    const HOMES: Homes = Homes { activations: BufferId(1), kept_at: 4096, handed: BufferId(2) };
    const RESOURCES: Resources =
        Resources { workers: 2, vtcm_bytes: 1 << 20, units: Units { vector_contexts: 0, hmx: 0 } };

    fn buffer(id: BufferId) -> Option<(String, BufferInfo)> {
        let name = ["weights", "activations"].get(id.0 as usize)?;
        Some(((*name).to_owned(), BufferInfo { size: 1 << 20, read_only: id == WEIGHTS }))
    }

    /// Ids to rows of a table, times a matrix, kept.
    fn recorder() -> Recorder {
        let mut rec = Recorder::new(3, 64);
        let table = rec.tensor(WEIGHTS, 0, DType::Q8_0x32, [128, 96, 1, 1], TensorFlags::CONST);
        rec.name(table, "token_embd.weight");
        let w = rec.tensor(WEIGHTS, 65536, DType::F16x32, [128, 64, 1, 1], TensorFlags::CONST);
        rec.name(w, "blk.0.ffn_down.weight");
        let ids = rec.activation(DType::I32, [3, 1, 1, 1]);
        let x = rec.activation(DType::F32, [128, 3, 1, 1]);
        let y = rec.kept(128, DType::F32, [64, 3, 1, 1]);
        for (tensor, axis) in [(ids, 0), (x, 1), (y, 1)] {
            rec.tokens_on(tensor, axis);
        }
        rec.op(Op::GetRows, &[table, ids], x);
        rec.op(Op::MulMat, &[w, x], y);
        rec
    }

    #[test]
    fn a_program_is_listed_with_names_places_and_bytes() {
        let listing = recorder().finish().unwrap().list("test", &HOMES, RESOURCES, buffer).unwrap();
        let [rows, product] = &listing.ops[..] else { panic!("{listing}") };
        let names = |line: &super::OpLine| {
            let name = |o: &super::OperandLine| (o.operand, o.tensor.clone(), o.buffer.clone(), o.offset);
            line.operands.iter().map(name).collect::<Vec<_>>()
        };
        let (weights, activations) = ("weights".to_owned(), "activations".to_owned());
        assert_eq!((rows.op, rows.kernel), ("GET_ROWS", "get_rows"));
        assert_eq!(names(rows)[0], ("table", "token_embd.weight".to_owned(), weights.clone(), 0));
        assert_eq!((names(rows)[1].0, names(rows)[1].1.as_str()), ("ids", "%0"));
        // Three rows of 128 values in 4352 bytes per 32 rows; ids and rows of F32.
        assert_eq!((rows.weight_bytes, rows.data_bytes, rows.vtcm_bytes), (3 * 4352 / 32, 12 + 3 * 512, 0));
        assert_eq!((product.op, product.kernel, product.index), ("MUL_MAT", "mul_mat f16", 1));
        assert_eq!(names(product)[0], ("w", "blk.0.ffn_down.weight".to_owned(), weights, 65536));
        assert_eq!((names(product)[1].0, names(product)[1].1.as_str()), ("x", "%1"));
        assert_eq!(names(product)[2], ("y", "kept".to_owned(), activations, 4096 + 128));
        assert_eq!((product.weight_bytes, product.data_bytes), (128 * 64 * 2, 3 * (512 + 256)));
        assert!(product.vtcm_bytes > 0 && product.vtcm_bytes.is_multiple_of(2 * 128));
        assert_eq!(listing.totals.weight_bytes, rows.weight_bytes + product.weight_bytes);
        assert_eq!((listing.totals.ops, listing.totals.tensors, listing.numerics), (2, 5, "exact"));
        let text = listing.to_string();
        assert!(text.contains("token_embd.weight") && text.contains("activations+0x1080"), "{text}");
    }

    #[test]
    fn numerics_are_part_of_the_block() {
        // The products of some are the matrix unit's.
        let resources = Resources { units: Units { hmx: 1, ..Units::NONE }, ..RESOURCES };
        for &numerics in Numerics::ALL {
            let mut rec = recorder();
            rec.numerics(numerics);
            let recorded = rec.finish().unwrap();
            assert_eq!(recorded.list("test", &HOMES, resources, buffer).unwrap().numerics, numerics.name());
            let block = recorded.block(0, &HOMES, |id| buffer(id).map(|(_, info)| info)).unwrap();
            let at = std::mem::offset_of!(hexflash_abi::program::ProgramHeader, numerics);
            assert_eq!(block[at..][..4], numerics.wire().to_le_bytes());
        }
    }

    #[test]
    fn what_the_device_would_refuse_is_refused_by_name() {
        let mut rec = recorder();
        let w = rec.tensor(WEIGHTS, 65536, DType::F16x32, [96, 64, 1, 1], TensorFlags::CONST);
        rec.name(w, "blk.1.ffn_down.weight");
        let [x, y] = [128, 64].map(|n| rec.activation(DType::F32, [n, 1, 1, 1]));
        rec.op(Op::MulMat, &[w, x], y);
        let recorded = rec.finish().unwrap();
        let refused = |error: RecordError| {
            let text = error.to_string();
            let named =
                "op 2 MUL_MAT with blk.1.ffn_down.weight: operand has an unsupported shape (operand x)";
            assert!(text.contains(named), "{text}");
        };
        refused(recorded.list("test", &HOMES, RESOURCES, buffer).unwrap_err());
        refused(recorded.block(0, &HOMES, |id| buffer(id).map(|(_, info)| info)).unwrap_err());
    }
}
