//! What is not in order yet, and modules that must not use each other.

/// The folder's own file is the ground floor and the roof.
const HUB: &str = "the folder's own file has what its modules share, and uses them";
/// One type is written in several files.
const METHODS: &str = "a type has its methods in several files";
/// Two files that are one, or a constant on the wrong side.
const NEIGHBOURS: &str = "modules side by side name each other's types or constants";

/// A module, how many of the modules right below it (its own file is one, too) are in circles, and why. An
/// entry that says more than there are fails.
pub const CIRCLES: &[(&str, usize, &str)] = &[
    ("dsp-runtime/image/src/qemu", 6, HUB),
    ("dsp-runtime/image/src/skel/qurt", 5, HUB),
    ("dsp-runtime/src/hmx", 4, HUB),
    ("dsp-runtime/src/hvx", 10, HUB),
    ("dsp-runtime/src/hvx/hexagon", 4, HUB),
    ("dsp-runtime/src/kernels/attention/flash_attn", 3, METHODS),
    ("dsp-runtime/src/kernels/attention/flash_attn/by_hmx", 4, METHODS),
    ("dsp-runtime/src/kernels/attention/flash_attn/format", 2, NEIGHBOURS),
    ("dsp-runtime/src/kernels/recurrent/gated_delta_net/by_hmx", 5, METHODS),
    ("host-runtime/cli/src", 3, NEIGHBOURS),
    ("host-runtime/cli/src/bench", 6, HUB),
    ("host-runtime/cli/src/deploy", 5, HUB),
    ("host-runtime/cli/src/hub", 2, HUB),
    ("host-runtime/cli/tests/cli", 3, METHODS),
    ("host-runtime/ggml-backend/src", 6, NEIGHBOURS),
    ("host-runtime/ggml-backend/src/translate", 7, METHODS),
    ("host-runtime/server/src", 2, NEIGHBOURS),
    ("host-runtime/server/src/gbnf", 6, HUB),
    ("host-runtime/server/src/http", 3, HUB),
    ("host-runtime/src", 15, METHODS),
    ("host-runtime/src/generate", 7, HUB),
    ("host-runtime/src/record", 2, HUB),
    ("host-runtime/src/sequence", 8, METHODS),
    ("host-runtime/src/tokenizer", 10, HUB),
    ("host-runtime/src/weights", 4, NEIGHBOURS),
    ("shared-abi/src", 7, HUB),
    ("shared-abi/src/op", 30, HUB),
    ("tests/cdsprpc/src", 3, NEIGHBOURS),
    ("tests/conformance/src/compare", 3, NEIGHBOURS),
    ("tests/conformance/src/ops/adapt", 7, HUB),
    ("tests/guest/src", 4, NEIGHBOURS),
    ("tests/oracle/src", 2, NEIGHBOURS),
    ("tests/oracle/src/cases", 4, HUB),
    ("tests/oracle/src/cases/lists", 7, HUB),
    ("tests/oracle/src/llama", 9, HUB),
];

/// A crate, a module in it, and modules right below that one that use nothing of each other.
pub const APART: &[(&str, &str, &[&str])] =
    &[("dsp-runtime/src", "kernels", &["attention", "products", "recurrent", "small"])];
