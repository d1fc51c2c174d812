//! The C program with the vectors of float instructions, for the vendor's simulator, and its run under ours.

use std::path::Path;
use std::process::Command;

use hexflash_abi::forms::Form;

use super::forms::{Archs, Block, Lane};
use crate::emulator_build::{self, CLANG};
use crate::failure::{Failure, Result};
use crate::process;
use crate::toolchain::{self, Toolchain};

/// Versions that the program is compiled for and run as.
const VERSIONS: [u32; 6] = [68, 69, 73, 75, 79, 81];

/// The assembly of a form, and whether it gives a pair: `%0` is what it gives, `%1` and `%2` are the
/// operands; v0 and v1 are free.
const fn assembly(form: Form) -> (&'static str, bool) {
    match form {
        Form::AddSf => ("%0.sf = vadd(%1.sf,%2.sf)", false),
        Form::SubSf => ("%0.sf = vsub(%1.sf,%2.sf)", false),
        Form::MpySf => ("%0.sf = vmpy(%1.sf,%2.sf)", false),
        Form::MpyAccSf => ("%0.sf += vmpy(%1.hf,%2.hf)", true),
        Form::MpyHf => ("%0.hf = vmpy(%1.hf,%2.hf)", false),
        Form::CvtSfHf => ("%0.sf = vcvt(%1.hf)", true),
        Form::CvtHfSf => ("%0.hf = vcvt(%1.sf,%2.sf)", false),
        Form::CvtHfB => ("%0.hf = vcvt(%1.b)", true),
        Form::QfAddSf => (r"v0.qf32 = vadd(%1.sf,%2.sf)\n%0.sf = v0.qf32", false),
        Form::QfSubSf => (r"v0.qf32 = vsub(%1.sf,%2.sf)\n%0.sf = v0.qf32", false),
        Form::QfMpySf => (r"v0.qf32 = vmpy(%1.sf,%2.sf)\n%0.sf = v0.qf32", false),
        Form::QfMpyHf => {
            (r"v1:0.qf32 = vmpy(%1.hf,%2.hf)\nv0.sf = v0.qf32\nv1.sf = v1.qf32\n%0 = vcombine(v1,v0)", true)
        }
        Form::HfOfQf => (r"v1:0.qf32 = vmpy(%1.hf,%2.hf)\n%0.hf = v1:0.qf32", false),
        Form::MaxSf => ("%0.sf = vmax(%1.sf,%2.sf)", false),
        Form::MinSf => ("%0.sf = vmin(%1.sf,%2.sf)", false),
        Form::SfOfW => ("%0.sf = %1.w", false),
        Form::HfOfH => ("%0.hf = %1.h", false),
        Form::CopiedQf => (r"v0.qf32 = vmpy(%1.sf,%2.sf)\nv1 = v0\n%0.sf = v1.qf32", false),
        Form::SquaredQf => {
            (r"v0.qf32 = vsub(%1.sf,%2.sf)\nv1.qf32 = vmpy(v0.qf32,v0.qf32)\n%0.sf = v1.qf32", false)
        }
        Form::QfAddHf => (r"v0.qf16 = vadd(%1.hf,%2.hf)\n%0.hf = v0.qf16", false),
    }
}

const HEAD: &str = r#"/* Written by `cargo xtask vectors --update`: float instructions of HVX with what they must give.
 *
 * It prints a line for each form, and the lanes that differ. With the vendor's tools:
 *
 *   hexagon-clang -O1 -mv73 -mhvx -mhvx-length=128B -mhvx-qfloat -mhvx-ieee-fp vectors.c -o vectors
 *   hexagon-sim -mv73 --simulated_returnval --usefs . -- vectors
 *
 * A processor of v79 and later has no IEEE arithmetic: leave -mhvx-ieee-fp out there. */

#ifdef BARE /* a Linux process without a C library, for an emulator in user mode */
static int sys(int number, int a, const void *b, int c) {
    register int r6 __asm__("r6") = number;
    register int r0 __asm__("r0") = a;
    register const void *r1 __asm__("r1") = b;
    register int r2 __asm__("r2") = c;
    __asm__ volatile("trap0(#1)" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r6) : "memory");
    return r0;
}
static void put(char c) { sys(64, 1, &c, 1); }
#else
#include <stdio.h>
static void put(char c) { putchar(c); }
#endif

typedef int vector __attribute__((vector_size(128)));
typedef int pair __attribute__((vector_size(256)));
typedef unsigned int word;

static void text(const char *s) { while (*s) put(*s++); }
static void hex(word x) { for (int i = 28; i >= 0; i -= 4) put("0123456789abcdef"[x >> i & 15]); }

static word u[32] __attribute__((aligned(128))), v[32] __attribute__((aligned(128)));
static word x[64] __attribute__((aligned(256))), d[64] __attribute__((aligned(256)));

static int wrong;

/* Lanes lie in memory as operands and then results, `takes` and `gives` words of each. */
static void load(const word *lanes, int n, int takes, int gives) {
    for (int i = 0; i < 32; i++) {
        const word *lane = lanes + i * (takes + gives);
        u[i] = i < n ? lane[0] : 0;
        v[i] = i < n && takes > 1 ? lane[1] : 0;
        x[i] = i < n && takes > 2 ? lane[2] : 0;
        x[32 + i] = i < n && takes > 3 ? lane[3] : 0;
        d[i] = d[32 + i] = 0;
    }
}

static void compare(const char *form, const char *question, const word *lanes, int n, int takes, int gives) {
    int differ = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < gives; k++)
            differ += d[32 * k + i] != lanes[i * (takes + gives) + takes + k];
    text(form);
    text(differ == 0 ? ": as expected\n" : *question ? ": otherwise; " : ": WRONG\n");
    if (differ && *question) { text(question); put('\n'); }
    if (!differ) return;
    wrong += !*question;
    for (int i = 0; i < n; i++) {
        const word *lane = lanes + i * (takes + gives);
        text("   ");
        for (int k = 0; k < takes; k++) { put(' '); hex(lane[k]); }
        text(" : expected");
        for (int k = 0; k < gives; k++) { put(' '); hex(lane[takes + k]); }
        text(", given");
        for (int k = 0; k < gives; k++) { put(' '); hex(d[32 * k + i]); }
        put('\n');
    }
}

int main(void) {
    vector *U = (vector *)u, *V = (vector *)v, *D = (vector *)d;
    pair *X = (pair *)x, *DD = (pair *)d;
    (void)X; (void)DD;
"#;

const TAIL: &str = r#"    text(wrong ? "something is WRONG\n" : "nothing is wrong\n");
    return wrong != 0;
}

#ifdef BARE
void begin(void) { sys(94, main(), 0, 0); }
__asm__(".globl _start\n_start:\nr29 = and(r29,#-256)\ncall begin\n");
void *memset(void *to, int c, unsigned n) {
    for (volatile char *p = to; n--;) *p++ = (char)c;
    return to;
}
void *memcpy(void *to, const void *from, unsigned n) {
    volatile char *p = to;
    for (const char *q = from; n--;) *p++ = *q++;
    return to;
}
#endif
"#;

/// The program.
pub fn program(blocks: &[Block]) -> String {
    let body: String = blocks.iter().map(part).collect();
    format!("{HEAD}{body}{TAIL}")
}

/// What compares the lanes of a form.
fn part(Block { form, archs, question, lanes }: &Block) -> String {
    let Archs { first, last } = archs;
    let (takes, gives) = (lanes[0].takes.len(), lanes[0].gives.len());
    let rows: String = lanes.iter().map(row).collect();
    let (code, is_pair) = assembly(*form);
    let start = if *form == Form::MpyAccSf { "*DD = *X; " } else { "" };
    let given = match (is_pair, start.is_empty()) {
        (false, _) => "\"=&v\"(*D)",
        (true, true) => "\"=&v\"(*DD)",
        (true, false) => "\"+&v\"(*DD)",
    };
    let run = format!(
        "{start}__asm__ volatile(\n            \"{code}\"\n            : {given} : \"v\"(*U), \"v\"(*V) : \"v0\", \"v1\");"
    );
    let question = question.unwrap_or_default();
    format!(
        "#if __HVX_ARCH__ >= {first} && __HVX_ARCH__ <= {last}\n    {{\n        static const word lanes[] = \
         {{\n{rows}        }};\n        load(lanes, {n}, {takes}, {gives});\n        {run}\n        \
         compare(\"{form}\", \"{question}\", lanes, {n}, {takes}, {gives});\n    }}\n#endif\n",
        n = lanes.len(),
    )
}

fn row(Lane { takes, gives }: &Lane) -> String {
    let words: Vec<_> = takes.iter().chain(gives).map(|word| format!("0x{word:08x}")).collect();
    format!("            {},\n", words.join(", "))
}

/// Compiles the program for each version and runs it: nothing may be wrong.
pub fn run(root: &Path, program: &Path) -> Result<()> {
    let folder = toolchain::output_dir(root)?.join("vectors");
    std::fs::create_dir_all(&folder).map_err(|error| Failure::on_disk("create", &folder, &error))?;
    let clang = process::find_program(&[CLANG]).ok_or_else(|| {
        Failure::unusable(format!("{CLANG} is not on PATH"), "run `cargo xtask setup emulator`")
    })?;
    let emulator = emulator_build::path()?;
    for version in VERSIONS {
        let [object, file] = ["o", "elf"].map(|kind| folder.join(format!("v{version}.{kind}")));
        let mut compiler = Command::new(&clang);
        compiler.args([
            "--target=hexagon-unknown-none-elf",
            "-O1",
            "-ffreestanding",
            "-fno-builtin",
            "-DBARE",
        ]);
        compiler.args([format!("-mcpu=hexagonv{version}"), format!("-mhvx=v{version}")]);
        compiler.args(["-mhvx-length=128b", "-mhvx-qfloat", "-Wall", "-Wextra", "-Werror", "-c"]);
        if version < 79 {
            compiler.arg("-mhvx-ieee-fp");
        }
        process::run(compiler.arg(program).arg("-o").arg(&object))?;
        process::run(Toolchain::wanted(None)?.linker()?.arg("-static").arg(&object).arg("-o").arg(&file))?;
        let mut command = Command::new(&emulator);
        let output = command.env("QEMU_CPU", format!("v{version}")).arg(&file).output().map_err(|error| {
            Failure::unusable(
                format!("{} could not be started ({error})", emulator.display()),
                "run `cargo xtask setup emulator`",
            )
        })?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            eprint!("{said}{}", String::from_utf8_lossy(&output.stderr));
            return Err(Failure::failed(
                format!("the vectors and the emulator disagree as v{version}"),
                "the lines above say where: one of the definitions and the emulator's patches is wrong",
            ));
        }
        println!("v{version}: {} forms as expected", said.matches(": as expected").count());
    }
    Ok(())
}
