//! The numbers and names of ops. What each of them takes and checks is in [`crate::op`].

wire_enum! {
    /// Opcode.
    pub enum Op: u16 {
        /// x / sqrt(mean(x^2) + eps) per row, times an optional weight row.
        RmsNorm = 1 "RMS_NORM",
        /// x / max(sqrt(sum(x^2)), eps) per row.
        L2Norm = 2 "L2_NORM",
        /// Weights (tiled) times activations.
        MulMat = 3 "MUL_MAT",
        /// F32 rows to int8 activations, once for all matrices that read them.
        Quantize = 4 "QUANTIZE",
        /// Rows by index, to F32.
        GetRows = 5 "GET_ROWS",
        /// Rows written by index.
        SetRows = 6 "SET_ROWS",
        /// a + b, b repeated over a.
        Add = 7 "ADD",
        /// a * b, b repeated over a.
        Mul = 8 "MUL",
        /// s * x + b.
        Scale = 9 "SCALE",
        /// x * sigmoid(x).
        Silu = 10 "SILU",
        /// 1 / (1 + exp(-x)).
        Sigmoid = 11 "SIGMOID",
        /// ln(1 + exp(x)); x above 20.
        Softplus = 12 "SOFTPLUS",
        /// exp(x).
        Exp = 13 "EXP",
        /// The gate of an MLP, such as silu(a) * b, of two tensors or of the two halves of one.
        Glu = 14 "GLU",
        /// Rotary position embedding.
        Rope = 15 "ROPE",
        /// Causal convolution per channel over a ring of past rows; with a tape for tokens that may be taken
        /// back.
        SsmConv = 16 "SSM_CONV",
        /// Gated delta rule, recurrent; with a factor tape for tokens that may be taken back.
        GatedDeltaNet = 17 "GATED_DELTA_NET",
        /// Appends K and V to their caches, then attends.
        FlashAttnExt = 18 "FLASH_ATTN_EXT",
        /// Index of the first maximum of each row, and how far it is above the second-best value.
        Argmax = 19 "ARGMAX",
        /// Copy with conversion; also CONT.
        Cpy = 20 "CPY",
        /// Two tensors joined along an axis.
        Concat = 21 "CONCAT",
        /// Keeps the drafted tokens that the target agrees with, and advances the step registers.
        Accept = 22 "ACCEPT",
        /// Sets `n_tokens` of every register block to another register's value plus a constant.
        SetTokens = 23 "SET_TOKENS",
        /// Appends K and V rows to their caches.
        KvAppend = 24 "KV_APPEND",
        /// Saves the state of a slot as a snapshot, or restores it.
        CopySlot = 25 "COPY_SLOT",
        /// Activations times the weights of the experts that ids name.
        MulMatId = 26 "MUL_MAT_ID",
        /// The best experts of each token, and their weights.
        TopkMoe = 27 "TOPK_MOE",
        /// The sum of the results of a token's experts, each times its weight, in their order.
        WeightedSum = 28 "WEIGHTED_SUM",
        /// Rows that ids name, added to what experts gave.
        AddId = 29 "ADD_ID",
        /// Moves the step registers to the next draft of a chain, or ends the program after the last one.
        NextDraft = 30 "NEXT_DRAFT",
        /// Attention over keys and values that are rows.
        Attend = 31 "ATTEND",
        /// A function of every element that parameters name.
        Unary = 32 "UNARY",
        /// a / b, b repeated over a.
        Div = 33 "DIV",
        /// (x - mean(x)) / sqrt(variance(x) + eps) per row.
        Norm = 34 "NORM",
        /// Softmax of each row, scaled, with a mask and sinks if wanted.
        SoftMax = 35 "SOFT_MAX",
        /// The sum of each row.
        SumRows = 36 "SUM_ROWS",
        /// Indices of the first elements of each row when it is sorted.
        Argsort = 37 "ARGSORT",
    }
}
