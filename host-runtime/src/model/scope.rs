//! What the tensors of a model are called: in the file, and in plans and programs, where target, draft and
//! the encoder of pictures meet.

/// What the labels of a draft's tensors begin with.
pub(crate) const DRAFT_PREFIX: &str = "draft.";

/// What the labels of an encoder's tensors begin with.
const ENCODER_PREFIX: &str = "encoder.";

/// The tensor of the embedding.
pub(super) const EMBEDDING: &str = "token_embd.weight";

/// The tensor of the LM head, in models that have one apart from the embedding.
pub(super) const HEAD: &str = "output.weight";

/// What all layers get of a token besides the stream: a table by tokens.
pub(super) const PER_LAYER_TABLE: &str = "per_layer_token_embd.weight";

/// As much of a token's embedding: a matrix.
pub(super) const PER_LAYER_MATRIX: &str = "per_layer_model_proj.weight";

/// The norm behind that matrix.
pub(super) const PER_LAYER_NORM: &str = "per_layer_proj_norm.weight";

/// Whether a weight of the whole model is read where tokens enter it, and nowhere else.
pub(super) fn enters(label: &str) -> bool {
    [PER_LAYER_TABLE, PER_LAYER_MATRIX, PER_LAYER_NORM].contains(&label)
}

/// A model or one of its layers: the part that its tensors' names share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    owner: Owner,
    layer: Option<usize>,
}

/// Owner of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Target,
    Draft,
    Encoder,
}

impl Scope {
    /// The target, whose tensors are labelled with their names in the file.
    pub const TARGET: Self = Self { owner: Owner::Target, layer: None };

    /// The draft, whose labels begin with `draft.`.
    pub const DRAFT: Self = Self { owner: Owner::Draft, layer: None };

    /// The encoder of pictures, whose labels begin with `encoder.`.
    pub const ENCODER: Self = Self { owner: Owner::Encoder, layer: None };

    /// Layer `layer` of the model.
    #[must_use]
    pub const fn layer(self, layer: usize) -> Self {
        Self { layer: Some(layer), ..self }
    }

    /// The model that has the layer.
    #[must_use]
    pub const fn model(self) -> Self {
        Self { layer: None, ..self }
    }

    /// Whether this is the draft or one of its layers.
    pub const fn is_draft(self) -> bool {
        matches!(self.owner, Owner::Draft)
    }

    /// The name that the file has for `tensor`.
    pub fn name(self, tensor: &str) -> String {
        match (self.layer, self.owner) {
            (Some(layer), Owner::Target | Owner::Draft) => format!("blk.{layer}.{tensor}"),
            (Some(layer), Owner::Encoder) => format!("v.blk.{layer}.{tensor}"),
            (None, _) => tensor.to_owned(),
        }
    }

    /// The label that plans and programs have for `tensor`.
    pub fn label(self, tensor: &str) -> String {
        let model = match self.owner {
            Owner::Target => "",
            Owner::Draft => DRAFT_PREFIX,
            Owner::Encoder => ENCODER_PREFIX,
        };
        format!("{model}{}", self.name(tensor))
    }
}

/// The layer whose tensor has that name, if it is a layer's.
pub(crate) fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_tell_drafts_and_layers_apart() {
        let layer = Scope::DRAFT.layer(12);
        assert_eq!(layer.name("attn_q.weight"), "blk.12.attn_q.weight");
        assert_eq!(layer.label("attn_q.weight"), "draft.blk.12.attn_q.weight");
        assert_eq!(Scope::TARGET.label(EMBEDDING), EMBEDDING);
        assert_eq!(layer.model().label("rope_freqs.weight"), "draft.rope_freqs.weight");
        let layer = Scope::ENCODER.layer(3);
        assert_eq!(layer.name("ln1.weight"), "v.blk.3.ln1.weight");
        assert_eq!(layer.label("ln1.weight"), "encoder.v.blk.3.ln1.weight");
        assert_eq!(layer_of(&Scope::DRAFT.layer(12).name("ffn_norm.weight")), Some(12));
        assert_eq!([EMBEDDING, "blk.x.y", "blk.3"].map(layer_of), [None; 3]);
    }
}
