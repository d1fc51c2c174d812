//! A form that answers are kept to.

use llguidance::api::TopLevelGrammar;

use super::refusal::Refusal;
use crate::grammar::{Grammar, Grammars};

/// The field with a grammar.
pub(crate) const GRAMMAR: &str = "grammar";

/// The name of the form of a text in the grammar of calls, where an answer may be either.
pub(crate) const TEXT: &str = "text";

/// A form that answers are kept to.
pub(crate) struct Form {
    /// The field that asks for it.
    name: &'static str,
    grammar: TopLevelGrammar,
    /// What of the request answers are not kept to.
    pub(crate) ignored: Option<String>,
}

impl Form {
    /// The form that the field `name` asks for, and what of it answers are not kept to.
    pub(crate) fn new(name: &'static str, grammar: TopLevelGrammar, ignored: Option<String>) -> Self {
        Self { name, grammar, ignored }
    }

    /// The form of a call.
    pub(crate) fn of_calls(grammar: TopLevelGrammar, ignored: Option<String>) -> Self {
        Self { name: "tools", grammar, ignored }
    }

    /// A call, by a grammar that leads to one named [`TEXT`], or a text of this form.
    ///
    /// # Errors
    /// The form is a grammar of the client's own, which cannot be part of another one.
    pub(crate) fn beside(self, calls: Self) -> Result<Self, Refusal> {
        self.gives_way()?;
        let mut grammar = calls.grammar;
        grammar.grammars.extend(self.grammar.grammars.into_iter().map(|mut part| {
            part.name = Some(TEXT.to_owned());
            part
        }));
        let ignored: Vec<String> = [calls.ignored, self.ignored].into_iter().flatten().collect();
        let ignored = (!ignored.is_empty()).then(|| ignored.join(", "));
        Ok(Self { name: self.name, grammar, ignored })
    }

    /// That an answer may be a call instead. Who writes a grammar means the whole answer, whatever it is.
    pub(crate) fn gives_way(&self) -> Result<(), Refusal> {
        if self.name == GRAMMAR {
            return Err(Refusal::wrong(self.name, "the answer is to be a call, too; ask for one of them"));
        }
        Ok(())
    }

    /// Compiles it for the tokens of a model; `grammars` are those of that model, or why there are none.
    pub(crate) fn compile(&self, grammars: &Result<Grammars, String>) -> Result<Grammar, Refusal> {
        let grammars = grammars.as_ref().map_err(|reason| Refusal::wrong(self.name, reason))?;
        grammars.compile(self.grammar.clone()).map_err(|reason| Refusal::wrong(self.name, reason))
    }
}
