//! Matrices with a row per token, of a draft or of its target, and heads that have rows for some tokens only.

use hexflash_abi::DType;

use crate::gguf::{GgmlType, Gguf};
use crate::model::decoder::Decoder;
use crate::model::error::{DraftError, ModelError};
use crate::model::kept::{KeptPlanner, Purpose};
use crate::model::scope::{EMBEDDING, HEAD, Scope};
use crate::record::RecordError;

/// Target ids of a reduced head's rows, I32 `{1, rows}`: a tensor of the file, and what is kept of it.
pub(super) const IDS: &str = "d2t";

/// A matrix with a row per token: the draft's own or the target's.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// Name of the matrix in the file that has it.
    pub name: &'static str,
    /// Model that has it.
    pub owner: Scope,
    /// Rows of the matrix.
    pub rows: u32,
}

impl Table {
    /// The embedding.
    pub(super) fn embedding(gguf: &Gguf, target: &Decoder) -> Self {
        let owner = if gguf.tensor(EMBEDDING).is_some() { Scope::DRAFT } else { Scope::TARGET };
        Self { name: EMBEDDING, owner, rows: target.n_vocab }
    }

    /// The LM head. The draft's own may be reduced: have rows for some of the tokens only.
    pub(super) fn head(gguf: &Gguf, target: &Decoder) -> Self {
        match gguf.tensor(HEAD) {
            Some(own) => {
                let rows = u32::try_from(own.ne[1]).unwrap_or(u32::MAX);
                Self { name: HEAD, owner: Scope::DRAFT, rows }
            }
            None => Self { name: target.head(), owner: Scope::TARGET, rows: target.n_vocab },
        }
    }

    /// Label of the matrix.
    pub(super) fn label(&self) -> String {
        self.owner.label(self.name)
    }

    /// Whether it is the draft's own.
    pub(super) fn is_own(&self) -> bool {
        self.owner.is_draft()
    }

    /// Target ids of its rows, if it is a reduced head.
    ///
    /// # Errors
    /// It has fewer rows than the target has tokens, and the file no ids for them; or other ids than the
    /// target's.
    pub(super) fn ids(&self, gguf: &Gguf, target: &Decoder) -> Result<Option<Vec<u32>>, ModelError> {
        let wrap = |error| ModelError::Draft { path: gguf.path().to_path_buf(), error };
        let rows = self.rows;
        let Some(tensor) = gguf.tensor(IDS).or_else(|| gguf.tensor("d2t.weight")) else {
            if rows == target.n_vocab {
                return Ok(None);
            }
            let (draft, target) = (rows.to_string(), target.n_vocab.to_string());
            return Err(wrap(DraftError::Mismatch { what: "the size of the vocabulary", draft, target }));
        };
        let shape = [u64::from(rows), 1, 1, 1];
        if !self.is_own() || tensor.ne != shape || tensor.ggml_type != GgmlType::I64 {
            return Err(ModelError::Shape {
                path: gguf.path().to_path_buf(),
                name: tensor.name.clone(),
                found: tensor.shape().to_vec(),
                expected: vec![u64::from(rows)],
            });
        }
        let data = gguf.data(tensor)?;
        let ids = data.as_chunks().0.iter().map(|&id| i64::from_le_bytes(id));
        let known = |id: i64| u32::try_from(id).ok().filter(|&id| id < target.n_vocab).ok_or(id);
        match ids.map(known).collect() {
            Ok(ids) => Ok(Some(ids)),
            Err(id) => Err(wrap(DraftError::Mismatch {
                what: "an id of d2t",
                draft: id.to_string(),
                target: format!("below {}", target.n_vocab),
            })),
        }
    }
}

/// Declares the ids of a reduced head.
///
/// # Errors
/// They are more than programs can describe.
pub(super) fn keep_ids(ids: Option<&[u32]>, plan: &mut KeptPlanner) -> Result<(), RecordError> {
    let Some(ids) = ids else { return Ok(()) };
    plan.keep(Scope::DRAFT, IDS, Purpose::Rounds, (DType::I32, [1, ids.len() as u32, 1, 1]))
}
