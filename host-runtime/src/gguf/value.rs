//! Metadata values: the twelve scalar types, strings and one-level arrays.

use std::fmt;

/// Type number of a metadata value as stored in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // The names are the documentation.
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// The type with this number in a GGUF file.
    pub const fn from_id(id: u32) -> Option<ValueType> {
        Some(match id {
            0 => ValueType::U8,
            1 => ValueType::I8,
            2 => ValueType::U16,
            3 => ValueType::I16,
            4 => ValueType::U32,
            5 => ValueType::I32,
            6 => ValueType::F32,
            7 => ValueType::Bool,
            8 => ValueType::String,
            9 => ValueType::Array,
            10 => ValueType::U64,
            11 => ValueType::I64,
            12 => ValueType::F64,
            _ => return None,
        })
    }

    /// The number stored in GGUF files.
    pub const fn id(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::String => "string",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        })
    }
}

/// What a key holds, for messages: a type, and a length if it is an array of that type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Type of the value, or of each element.
    pub value_type: ValueType,
    /// Number of elements; `None` for a scalar.
    pub len: Option<usize>,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len {
            None => write!(f, "{}", self.value_type),
            Some(len) => write!(f, "array of {len} {}", self.value_type),
        }
    }
}

/// Strings of one array in a single allocation: a vocabulary has hundreds of thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringArray {
    text: String,
    /// End of each string in `text`, in bytes; its start is the end before it.
    ends: Vec<usize>,
}

impl StringArray {
    /// Room for `count` strings; the caller has checked that the file can hold so many.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { text: String::new(), ends: Vec::with_capacity(count) }
    }

    pub(super) fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(self.text.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.text[start..end])
    }

    /// All strings, in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }
}

impl<S: AsRef<str>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(iter: I) -> Self {
        let mut strings = StringArray::default();
        iter.into_iter().for_each(|s| strings.push(s.as_ref()));
        strings
    }
}

/// Defines `Value` and `Array` over the numeric types, with the conversions that writers use.
macro_rules! values {
    ($($variant:ident($t:ty)),+ $(,)?) => {
        /// A metadata value.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)] // The names are the documentation.
        pub enum Value {
            $($variant($t),)+
            String(String),
            Array(Array),
        }

        /// An array value. Arrays of arrays exist in the format but in no model, and are refused.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)] // The names are the documentation.
        pub enum Array {
            $($variant(Vec<$t>),)+
            String(StringArray),
        }

        impl Value {
            /// Type of the value, and length if it is an array.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Value::$variant(_) => Kind { value_type: ValueType::$variant, len: None },)+
                    Value::String(_) => Kind { value_type: ValueType::String, len: None },
                    Value::Array(a) => Kind { value_type: a.element_type(), len: Some(a.len()) },
                }
            }
        }

        impl Array {
            /// Type of each element.
            pub fn element_type(&self) -> ValueType {
                match self {
                    $(Array::$variant(_) => ValueType::$variant,)+
                    Array::String(_) => ValueType::String,
                }
            }

            /// Number of elements.
            pub fn len(&self) -> usize {
                match self {
                    $(Array::$variant(v) => v.len(),)+
                    Array::String(v) => v.len(),
                }
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }
        }

        $(
            impl From<$t> for Value {
                fn from(v: $t) -> Self {
                    Value::$variant(v)
                }
            }

            impl From<Vec<$t>> for Value {
                fn from(v: Vec<$t>) -> Self {
                    Value::Array(Array::$variant(v))
                }
            }

            impl From<&[$t]> for Value {
                fn from(v: &[$t]) -> Self {
                    Value::Array(Array::$variant(v.to_vec()))
                }
            }
        )+
    };
}

values! {
    U8(u8), I8(i8), U16(u16), I16(i16), U32(u32), I32(i32), U64(u64), I64(i64),
    F32(f32), F64(f64), Bool(bool),
}

impl Value {
    /// The value if it is an integer of any width; `i128` holds them all.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// The value if it is a float; an `f64` is rounded.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        }
    }

    /// The value if it is a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(v) = *self { Some(v) } else { None }
    }

    /// The value if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(v) = self { Some(v) } else { None }
    }

    /// The value if it is an array.
    pub fn as_array(&self) -> Option<&Array> {
        if let Value::Array(v) = self { Some(v) } else { None }
    }
}

impl Array {
    /// The elements if they are integers of any width.
    pub fn integers(&self) -> Option<Box<dyn ExactSizeIterator<Item = i128> + '_>> {
        Some(match self {
            Array::U8(v) => Box::new(v.iter().map(|&n| n.into())),
            Array::I8(v) => Box::new(v.iter().map(|&n| n.into())),
            Array::U16(v) => Box::new(v.iter().map(|&n| n.into())),
            Array::I16(v) => Box::new(v.iter().map(|&n| n.into())),
            Array::U32(v) => Box::new(v.iter().map(|&n| n.into())),
            Array::I32(v) => Box::new(v.iter().map(|&n| n.into())),
            Array::U64(v) => Box::new(v.iter().map(|&n| n.into())),
            Array::I64(v) => Box::new(v.iter().map(|&n| n.into())),
            _ => return None,
        })
    }
}

impl From<&str> for Value {
    fn from(v: &str) -> Self {
        Value::String(v.to_owned())
    }
}

impl From<String> for Value {
    fn from(v: String) -> Self {
        Value::String(v)
    }
}

impl From<StringArray> for Value {
    fn from(v: StringArray) -> Self {
        Value::Array(Array::String(v))
    }
}

impl From<&[&str]> for Value {
    fn from(v: &[&str]) -> Self {
        Value::Array(Array::String(v.iter().collect()))
    }
}

impl From<Vec<String>> for Value {
    fn from(v: Vec<String>) -> Self {
        Value::Array(Array::String(v.iter().collect()))
    }
}
