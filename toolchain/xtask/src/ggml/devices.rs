//! Some of llama.cpp's cases in other ways: by the matrix unit, through the stand-in for FastRPC, and as
//! Hexagon code.

use super::{Here, TEST_OPS, test_ops};
use crate::failure::Result;
use crate::oracle;
use crate::process;
use crate::setup::{self, Set};

/// Ops, and which of their cases: some of each kind of kernel. What they do with memory is what counts here:
/// results in the middle of a buffer, states, rows at places that are data.
const CASES: [(&str, &str); 6] = [
    ("ADD", "type=f32,ne=.10,5,4,[13]"),
    ("MUL_MAT", "type_a=(f16|q8_0|q4_0),type_b=f32,m=16,n=[19],k=256,bs=.1,1.,nr=.1,1."),
    ("SET_ROWS", "type_dst=(f16|f32|q8_0),type_idx=i64,ne=.256,5,1,3.,nr23=.1,1"),
    ("SSM_CONV", "ne_a=.4,1024"),
    ("GATED_DELTA_NET", "head_size=(16|32),n_seq_tokens=[14],"),
    ("FLASH_ATTN_EXT", "hsk=64,hsv=64,nh=4,nr23=.1,1.,kv=113,nb=(1|3),mask=1.*type_K=(f16|q8_0)"),
];

/// Ops of which the matrix unit has kernels, and some of the cases that it takes: prompts, and with products,
/// single rows, too, in programs of the class `hmx`.
const BY_UNIT: [(&str, &str, &str); 5] = [
    ("fast", "MUL_MAT", "m=16,n=9,k=256,bs=.[12],1.,nr=.[12],1."),
    ("hmx", "MUL_MAT", "m=16,n=1,k=256,bs=.1,1.,nr=.[12],1."),
    ("fast", "MUL_MAT_ID", "n_mats=4,n_used=2,b=0,m=512,n=32,k=256"),
    ("fast", "GATED_DELTA_NET", "head_size=(64|128),n_seq_tokens=(33|64|65|100|127)"),
    ("fast", "FLASH_ATTN_EXT", "hsk=(40|64|128),.*nh=4,nr23=.(1|4),1.,kv=(113|512),nb=(32|75),.*type_K=f16"),
];

/// The version of the Hexagon that any emulator runs, and whose results are the bits of `inproc`.
const ARCH: &str = "v67";

impl Here {
    /// In programs that the matrix unit has a part in.
    pub(super) fn by_the_matrix_unit(&self) -> Result<()> {
        println!("by the matrix unit:");
        for (numerics, op, cases) in BY_UNIT {
            let mut command = self.command(TEST_OPS)?;
            command.env("HEXFLASH_NUMERICS", numerics);
            test_ops(command, op, Some(cases))?;
        }
        Ok(())
    }

    /// Through the stand-in for FastRPC, whose two sides see each other's bytes only where they have cared
    /// for their caches, and which reports where they have not.
    pub(super) fn through_fastrpc(&self) -> Result<()> {
        let target = process::target_dir(&self.root)?;
        let built = |name: &str| target.join("debug").join(name);
        // A report of this run: an older one would be taken for it.
        let report = target.join(format!("ggml-fastrpc-{}.txt", std::process::id()));
        println!("through the stand-in for FastRPC:");
        for (op, cases) in CASES {
            let mut command = self.command(TEST_OPS)?;
            command.env("HEXFLASH_DEVICE", "htp").env("HEXFLASH_THREADS", "1");
            command.env("HEXFLASH_HTP_LIBRARY", built("libcdsprpc.so"));
            let settings = format!("report={} pd={}", report.display(), built("hexflash-pd").display());
            command.env("HEXFLASH_STANDIN", settings);
            test_ops(command, op, Some(cases))?;
        }
        oracle::no_breaches(&report)
    }

    /// As code for Hexagon, under the emulator.
    pub(super) fn as_hexagon_code(&self) -> Result<()> {
        setup::ensure(Set::Hexagon)?;
        process::run(&mut process::xtask(&["hexagon", "--image", "--arch", ARCH]))?;
        let image = process::target_dir(&self.root)?.join("hexagon").join(format!("hexflash-{ARCH}"));
        println!("as code for Hexagon {ARCH}:");
        for (op, cases) in CASES {
            let mut command = self.command(TEST_OPS)?;
            command.env("HEXFLASH_DEVICE", "qemu").env("HEXFLASH_THREADS", "1");
            // llama.cpp's programs do not lie beside what is built for Hexagon.
            command.env("HEXFLASH_QEMU_IMAGE", &image);
            test_ops(command, op, Some(cases))?;
        }
        Ok(())
    }
}
