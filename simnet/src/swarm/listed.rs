//! The options, as their types list them.
//!
//! A deserializer that has no input records each field that it is asked for, so an option cannot be forgotten here.
//!
//! Invariant: the paths are those of the printed options, where elements of a list have the path of the list.
//! Deliberately not here: `step`, which is no option that a seed draws, but the faults of one run.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::Options;

/// The faults of one run.
const STEP: &str = "step";

/// The variants of each option, which has none unless it is of an enum, by its path.
pub(super) type Listed = BTreeMap<String, &'static [&'static str]>;

pub(super) fn listed() -> Listed {
    let mut listed = Listed::new();
    let root = Trace {
        path: String::new(),
        listed: &mut listed,
    };
    Options::deserialize(root).expect("options are structs, lists, words and numbers");
    listed
}

/// Records what is asked for at a path.
struct Trace<'a> {
    path: String,
    listed: &'a mut Listed,
}

impl Trace<'_> {
    fn record(&mut self, variants: &'static [&'static str]) {
        self.listed.insert(self.path.clone(), variants);
    }

    fn below(&mut self, field: Option<&str>) -> Trace<'_> {
        let words = [self.path.as_str(), field.unwrap_or_default()];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        Trace {
            path: words.join("."),
            listed: self.listed,
        }
    }
}

impl<'de> Deserializer<'de> for Trace<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.record(&[]);
        visitor.visit_u64(0)
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.record(&[]);
        visitor.visit_bool(false)
    }

    fn deserialize_string<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.record(&[]);
        visitor.visit_str("")
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        if self.path == STEP {
            return visitor.visit_none();
        }
        self.record(&[]);
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        self.record(&[]);
        visitor.visit_seq(Element(Some(self)))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let fields = fields.iter();
        visitor.visit_map(Fields {
            of: self,
            fields,
            last: "",
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.record(variants);
        let first: StrDeserializer<'_, Error> = variants[0].into_deserializer();
        visitor.visit_enum(first)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str bytes byte_buf unit unit_struct newtype_struct
        tuple tuple_struct map identifier ignored_any
    }
}

/// One element of a list.
struct Element<'a>(Option<Trace<'a>>);

impl<'de> SeqAccess<'de> for Element<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(mut list) = self.0.take() else {
            return Ok(None);
        };
        seed.deserialize(list.below(None)).map(Some)
    }
}

/// All fields of a struct.
struct Fields<'a> {
    of: Trace<'a>,
    fields: std::slice::Iter<'static, &'static str>,
    last: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(field) = self.fields.next() else {
            return Ok(None);
        };
        self.last = field;
        let field: StrDeserializer<'_, Error> = field.into_deserializer();
        seed.deserialize(field).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.of.below(Some(self.last)))
    }
}
