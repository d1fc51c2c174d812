//! Which weights a model needs, in which form, and which of them are multiplied together.

use std::collections::{HashMap, HashSet};

use hexflash_abi::{BufferId, DType};

use super::error::ModelError;
use super::scope::Scope;
use crate::gguf::{GgmlType, Gguf};
use crate::weights::{Form, WeightEntry, WeightSpec};

/// Matrices that read the same activations: neighbours of one type are stored, and multiplied, as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    /// Per output, in the order asked for: label of the stored matrix, first row, rows.
    pub outputs: Vec<(String, u32, u32)>,
}

/// The weights of a model, before they are loaded.
#[derive(Debug, Default)]
pub struct WeightPlan {
    /// What to store.
    pub specs: Vec<WeightSpec>,
    /// Projections by name.
    pub projections: HashMap<String, Projection>,
}

/// Where a loaded weight lies on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPlace {
    /// The buffer.
    pub buffer: BufferId,
    /// First byte.
    pub offset: u64,
    /// Type and layout.
    pub dtype: DType,
    /// Elements per axis.
    pub ne: [u32; 4],
    /// Whether the graph made it up: it is no tensor of the file, and no layer's.
    pub constant: bool,
}

/// The weights of a model on a device, by label.
#[derive(Debug)]
pub struct WeightMap {
    places: HashMap<String, WeightPlace>,
    projections: HashMap<String, Projection>,
}

impl WeightMap {
    /// The weights of an image whose entries `entry` knows. `home` says where a byte of the image is: the
    /// buffer, and the place in it.
    pub fn new(
        plan: WeightPlan,
        entry: impl Fn(&str) -> Option<WeightEntry>,
        home: impl Fn(u64) -> (BufferId, u64),
    ) -> Self {
        let place = |spec: &WeightSpec| {
            let entry = entry(&spec.name)?;
            let (buffer, offset) = home(entry.offset);
            let constant = is_constant(spec);
            Some((
                spec.name.clone(),
                WeightPlace { buffer, offset, dtype: entry.dtype, ne: entry.ne, constant },
            ))
        };
        Self { places: plan.specs.iter().filter_map(place).collect(), projections: plan.projections }
    }

    /// Whether there is a weight of this label.
    pub fn has(&self, label: &str) -> bool {
        self.places.contains_key(label)
    }

    /// The weights of both maps.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.places.extend(other.places);
        self.projections.extend(other.projections);
        self
    }

    /// The weight called `label`.
    ///
    /// # Panics
    /// If the plan has no such weight: graph and plan of a model are written together.
    #[expect(
        clippy::panic,
        reason = "a label depends on the hyper-parameters alone, which plan and graph share"
    )]
    pub fn get(&self, label: &str) -> WeightPlace {
        *self.places.get(label).unwrap_or_else(|| panic!("the weight plan lacks {label}"))
    }

    /// The projection called `name`.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    #[expect(clippy::panic, reason = "as for labels of weights")]
    pub fn projection(&self, name: &str) -> &Projection {
        self.projections.get(name).unwrap_or_else(|| panic!("the weight plan lacks {name}"))
    }
}

impl WeightPlan {
    /// Labels of the weights that are no tensors of the file; every session that runs a part of the model
    /// reads them.
    pub fn constants(&self) -> HashSet<String> {
        self.specs.iter().filter(|spec| is_constant(spec)).map(|spec| spec.name.clone()).collect()
    }
}

fn is_constant(spec: &WeightSpec) -> bool {
    matches!(spec.form, Form::Values(_))
}

/// Collects a plan and checks every tensor's shape on the way.
pub struct WeightPlanner<'g> {
    gguf: &'g Gguf,
    plan: WeightPlan,
    /// They go to the end of the plan.
    constants: Vec<WeightSpec>,
    /// Tensors whose values have become constants, or which nothing reads.
    read: HashSet<String>,
}

impl<'g> WeightPlanner<'g> {
    /// An empty plan for the tensors of `gguf`.
    pub(super) fn new(gguf: &'g Gguf) -> Self {
        Self { gguf, plan: WeightPlan::default(), constants: Vec::new(), read: HashSet::new() }
    }

    /// The first tensor of the file that the plan does not use, and that is not `expected` to be there all
    /// the same.
    pub(super) fn unused(&self, expected: impl Fn(&str) -> bool) -> Option<&'g str> {
        let used: HashSet<&str> =
            self.plan.specs.iter().flat_map(|spec| &spec.sources).map(String::as_str).collect();
        let names = self.gguf.tensors().map(|tensor| tensor.name.as_str());
        names.into_iter().find(|name| !used.contains(name) && !self.read.contains(*name) && !expected(name))
    }

    /// The plan.
    pub(super) fn finish(mut self) -> WeightPlan {
        self.plan.specs.append(&mut self.constants);
        self.plan
    }

    /// Whether the file has a tensor.
    pub(super) fn has(&self, scope: Scope, tensor: &str) -> bool {
        self.gguf.tensor(&scope.name(tensor)).is_some()
    }

    fn check(&self, name: &str, ne: &[u64]) -> Result<(), ModelError> {
        let tensor = self.gguf.require_tensor(name)?;
        let mut expected = [1; 4];
        expected[..ne.len()].copy_from_slice(ne);
        if tensor.ne == expected {
            return Ok(());
        }
        Err(ModelError::Shape {
            path: self.gguf.path().to_path_buf(),
            name: name.to_owned(),
            found: tensor.shape().to_vec(),
            expected: ne.to_vec(),
        })
    }

    /// A tensor of shape `ne`.
    ///
    /// # Errors
    /// It is missing or has another shape.
    pub(super) fn add(
        &mut self,
        scope: Scope,
        tensor: &str,
        ne: &[u32],
        form: Form,
    ) -> Result<(), ModelError> {
        let name = scope.name(tensor);
        let ne: Vec<u64> = ne.iter().map(|&n| n.into()).collect();
        self.check(&name, &ne)?;
        self.plan.specs.push(WeightSpec { name: scope.label(tensor), sources: vec![name], form });
        Ok(())
    }

    /// A tensor of shape `ne` that the host reads, and the device does not.
    ///
    /// # Errors
    /// It is missing or has another shape.
    pub(super) fn read_by_host(&mut self, name: &str, ne: &[u32]) -> Result<(), ModelError> {
        let ne: Vec<u64> = ne.iter().map(|&n| n.into()).collect();
        self.check(name, &ne)?;
        self.read.insert(name.to_owned());
        Ok(())
    }

    /// A tensor that the file may have and nothing reads.
    pub(super) fn ignore(&mut self, scope: Scope, tensor: &str) {
        self.read.insert(scope.name(tensor));
    }

    /// Values that are no tensor of the file. Layers that share them add them once each, with one label.
    pub(super) fn constant(&mut self, label: &str, values: impl FnOnce() -> Vec<f32>) {
        if self.constants.iter().all(|spec| spec.name != label) {
            let form = Form::Values(values());
            self.constants.push(WeightSpec { name: label.to_owned(), sources: Vec::new(), form });
        }
    }

    /// The `n` values of a tensor of the model that all its layers divide by, in whatever session they are.
    ///
    /// # Errors
    /// It is missing, has another shape or type, or a value that is no positive number.
    pub(super) fn divisors(&mut self, model: Scope, tensor: &str, n: u32) -> Result<(), ModelError> {
        let name = model.name(tensor);
        if !self.read.insert(name.clone()) {
            return Ok(());
        }
        self.check(&name, &[n.into()])?;
        let (path, info) = (self.gguf.path().to_path_buf(), self.gguf.require_tensor(&name)?);
        if info.ggml_type != GgmlType::F32 {
            return Err(ModelError::Type { path, name, found: info.ggml_type });
        }
        let data = self.gguf.data(info)?;
        let values: Vec<f32> = data.as_chunks().0.iter().map(|&value| f32::from_le_bytes(value)).collect();
        let sound = |value: f32| value.is_finite() && value > 0.0;
        if let Some(index) = values.iter().position(|&value| !sound(value)) {
            return Err(ModelError::Divisor { path, name, index, value: values[index] });
        }
        self.constant(&model.label(tensor), || values);
        Ok(())
    }

    /// A matrix of `k` columns whose rows are those of several, of so many rows each: the projection `name`.
    ///
    /// # Errors
    /// The matrix is missing or has another shape.
    pub(super) fn split(
        &mut self,
        scope: Scope,
        name: &str,
        k: u32,
        source: &str,
        rows: &[u32],
    ) -> Result<(), ModelError> {
        self.project(scope, name, k, &[(source, rows.iter().sum())])?;
        let name = scope.label(name);
        if let Some(Projection { outputs }) = self.plan.projections.get_mut(&name)
            && let Some((label, ..)) = outputs.pop()
        {
            let mut at = 0;
            outputs.extend(rows.iter().map(|&rows| {
                let first = at;
                at += rows;
                (label.clone(), first, rows)
            }));
        }
        Ok(())
    }

    /// Matrices of `k` columns that read the same activations, with the rows of each: the projection `name`.
    ///
    /// # Errors
    /// One is missing or has another shape.
    pub(super) fn project(
        &mut self,
        scope: Scope,
        name: &str,
        k: u32,
        parts: &[(&str, u32)],
    ) -> Result<(), ModelError> {
        let name = scope.label(name);
        let mut outputs = Vec::new();
        let mut open: Option<(WeightSpec, _, u32)> = None;
        for &(source, rows) in parts {
            let source = scope.name(source);
            self.check(&source, &[k.into(), rows.into()])?;
            let kind = self.gguf.require_tensor(&source)?.ggml_type;
            let fits = open.as_ref().is_some_and(|(_, open_kind, _)| *open_kind == kind);
            if !fits {
                self.plan.specs.extend(open.take().map(|(spec, ..)| spec));
                let label = format!("{name}.{}", outputs.len());
                let spec = WeightSpec { name: label, sources: Vec::new(), form: Form::Tiled };
                open = Some((spec, kind, 0));
            }
            if let Some((spec, _, at)) = &mut open {
                spec.sources.push(source);
                outputs.push((spec.name.clone(), *at, rows));
                *at += rows;
            }
        }
        self.plan.specs.extend(open.map(|(spec, ..)| spec));
        self.plan.projections.insert(name, Projection { outputs });
        Ok(())
    }
}
