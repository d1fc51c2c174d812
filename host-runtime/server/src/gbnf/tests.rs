//! Translated grammars accept what they say, by the automaton that keeps answers in them.

use std::sync::LazyLock;

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use proptest::prelude::*;
use toktrie::ApproximateTokEnv;

use super::parse::parse;
use super::*;

const NO_TOKENS: fn(&str) -> Option<u32> = |_| None;

/// The matcher of a grammar, for a vocabulary of single bytes.
fn matcher(grammar: &str) -> Matcher {
    static FACTORY: LazyLock<ParserFactory> = LazyLock::new(|| {
        let mut factory = ParserFactory::new_simple(&ApproximateTokEnv::single_byte_env()).unwrap();
        factory.quiet();
        factory
    });
    let lark = translate(grammar, NO_TOKENS).unwrap_or_else(|error| panic!("{error} in\n{grammar}"));
    let matcher = Matcher::new(FACTORY.create_parser(TopLevelGrammar::from_lark(lark.clone())));
    assert_eq!(matcher.get_error(), None, "{lark}");
    matcher
}

/// Whether a text is complete in a grammar; its beginnings have to be possible then.
fn accepts(matcher: &Matcher, text: &str) -> bool {
    let mut matcher = matcher.deep_clone();
    for &byte in text.as_bytes() {
        let allowed = matcher.compute_mask_or_eos().unwrap().is_allowed(u32::from(byte));
        if !allowed {
            return false;
        }
        matcher.consume_token(u32::from(byte)).unwrap();
    }
    matcher.is_accepting().unwrap()
}

#[track_caller]
fn check(grammar: &str, fine: &[&str], wrong: &[&str]) {
    let matcher = matcher(grammar);
    for text in fine {
        assert!(accepts(&matcher, text), "{text:?} does not fit\n{}", translate(grammar, NO_TOKENS).unwrap());
    }
    for text in wrong {
        assert!(!accepts(&matcher, text), "{text:?} fits\n{}", translate(grammar, NO_TOKENS).unwrap());
    }
}

/// The lexemes of a translation.
fn lexemes_of(grammar: &str) -> Vec<String> {
    let lark = translate(grammar, NO_TOKENS).unwrap();
    lark.lines().filter(|line| line.starts_with('L')).map(str::to_owned).collect()
}

#[test]
fn json_is_json() {
    let grammar = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws   # members

array  ::= "[" ws ( value ("," ws value)* )? "]" ws

string ::= "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws ::= | " " | "\n" [ \t]{0,20}
"#;
    check(
        grammar,
        &[
            "{}",
            "{ \"a\":[1, -2.5e3,\"x\\u00e9\",{}] , \"b\" :true}",
            "{\"a\":\n\t\t\"é\",\"b\":null}\n",
            "{\"a\":[[],[{}],{\"b\":[]}]}",
        ],
        &[
            "",
            "[]",
            "{\"a\":01}",
            "{\"a\" 1}",
            "{\"a\":1,}",
            "{\"a\":\"\\x\"}",
            "{\"a\":tru}",
            "{\"a\":1}  x",
        ],
    );
    // Strings and numbers are lexemes as a whole.
    let lexemes = lexemes_of(grammar);
    assert!(lexemes.len() == 12 && lexemes.iter().any(|lexeme| lexeme.contains("A-Fa-f")), "{lexemes:#?}");
}

#[test]
fn lists_and_chess_are_one_lexeme() {
    let list =
        "root ::= item+\n\n# one point\nitem ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"\n";
    check(list, &["- a\n", "- é b\n- c\n"], &["- a", "- \n", "a\n", "- a\r\n", "- a\u{2028}\n"]);
    assert_eq!(lexemes_of(list).len(), 1);
    let chess = r#"
root ::= (
    "1. " move " " move "\n"
    # then come more
    ([1-9] [0-9]? ". " move " " move "\n")+
)
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle  ::= "O-O" "-O"?
"#;
    check(
        chess,
        &["1. e4 e5\n2. Nf3 Nc6\n", "1. e4 d5\n2. exd5 Qxd5+\n10. O-O O-O-O#\n"],
        &["1. e4 e5\n", "1. e9 e5\n2. Nf3 Nc6\n", "2. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n2. O-O-O-O e4\n"],
    );
    assert_eq!(lexemes_of(chess).len(), 1);
}

#[test]
fn arithmetic_and_a_small_language_nest() {
    check(
        r#"
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"#,
        &["1+2=3\n", "(a1 *(b_ -3))/4 = x\n", "1=1\n2=2\n"],
        &["1+=3\n", "(1+2=3\n", "1+2=\n", "1+2", "A=1\n"],
    );
    // A word may begin like a key word, and a key word like a word.
    check(
        r#"
root ::= statement+
statement ::= "int " name ";" | "if (" name ") {" statement* "}" | name "=" name ";"
name ::= [a-z]+
"#,
        &["int if;", "int i;if (i) {i=int;int j;}", "intx=y;", "ifx=y;"],
        &["int ;", "if (i) {i=int;", "int 1;"],
    );
}

/// Runs of text are lexemes, also where they may follow each other.
#[test]
fn text_beside_text_is_one_run() {
    let grammar = "root ::= \"<\" content* \">\"\ncontent ::= [^<>]+ | root\n";
    check(grammar, &["<>", "<ab>", "<a<b>c<>>"], &["<a", "a", "<a>>"]);
    let lexemes = lexemes_of(grammar);
    assert!(lexemes.iter().any(|lexeme| lexeme.contains('+') || lexeme.contains('*')), "{lexemes:#?}");
    let grammar = "root ::= \"<\" ([a-c]+ | \" \" | root)+ \">\"";
    check(grammar, &["<a>", "< >", "<a <b>>", "<<a>>"], &["<>", "<a<>>", "<d>"]);
}

#[test]
fn notation_means_what_it_says() {
    check(
        "root ::= \"a\"{2,3} \"b\"{2} \"c\"{0,1} \"d\"{1,}",
        &["aabbd", "aaabbcddd"],
        &["abbd", "aabbc", "aabbccd"],
    );
    check("root ::= ( \"a\" | ) \"b\"?", &["", "a", "b", "ab"], &["ba"]);
    check("root ::= [^a-c\\]\\-]+", &["d", "é[^"], &["a", "]", "-", "dd-"]);
    check("root ::= [a-] [-a]", &["--", "aa"], &["b-"]);
    check("root ::= \"\\x41\\u00e9\\U0001F600\\t\\r\\n\\\\\\\"\"", &["Aé😀\t\r\n\\\""], &["A"]);
    check("root ::= . .", &["é\n", "😀a"], &["a", "abc"]);
    check("root ::= \"a\"   |\n  \"b\" # rest\r\n\r\nother ::= \"c\"", &["a", "b"], &["c", "ab"]);
    check("root ::= \"(\" root? \")\" | root \"x\"", &["()", "(())x", "(()x)xx"], &["", "x", "(()"]);
    check("root ::= x{2}\nx ::= \"<\" x? \">\"", &["<><<>>"], &["<>", "<><><>"]);
    check("root ::= a\na ::= b\nb ::= a | \"x\"", &["x"], &["", "xx"]);
    check("root ::= \"\" a | \"k\"\na ::= \"\" | \"(\" a \")\" ", &["", "k", "(())"], &["(k)"]);
    check("root ::= [\\U0000D000-\\U0000F000]", &["\u{d000}", "\u{f000}"], &["a"]);
}

#[test]
fn tokens_are_named_by_id_and_text() {
    let token = |text: &str| (text == "<think>").then_some(7);
    let lark = translate("root ::= <think> !<[9]>* <[9]>", token).unwrap();
    assert!(lark.contains("<[7]>") && lark.contains("<[^9]>") && lark.contains("<[9]>"), "{lark}");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for (grammar, line, column, reason) in [
        ("", 1, 1, "no rule root"),
        ("x ::= \"a\"", 1, 1, "no rule root"),
        ("root ::= a\nb ::= \"b\"", 1, 10, "no rule of this name"),
        ("root ::= \"a", 1, 10, "not closed"),
        ("root ::= [a", 1, 10, "not closed"),
        ("root ::= [a-", 1, 10, "not closed"),
        ("root ::= []", 1, 10, "no characters"),
        ("root ::= (\"a\"", 1, 14, ") is missing"),
        ("root ::= \"a\")", 1, 13, "no meaning"),
        ("root ::= *", 1, 10, "no meaning"),
        ("root ::= \"a\"{3,2}", 1, 13, "larger"),
        ("root ::= \"a\"{99999}", 1, 14, "2000"),
        ("root ::= \"a\"{1", 1, 15, "} is missing"),
        ("root = \"a\"", 1, 6, "::="),
        ("root ::= \"a\"\n\nroot ::= \"b\"", 3, 1, "before"),
        ("root ::= \"é\\q\"", 1, 12, "backslash"),
        ("root ::= \"\\ud800\"", 1, 11, "no character"),
        ("root ::= \"\\x4\"", 1, 11, "digits"),
        ("root ::= <none>", 1, 10, "no token"),
        ("root ::= [b-a]", 1, 11, "before it begins"),
    ] {
        let error = translate(grammar, NO_TOKENS).expect_err(grammar);
        assert_eq!((error.line, error.column), (line, column), "{grammar}: {error}");
        assert!(error.reason.contains(reason), "{grammar}: {error}");
    }
}

#[test]
fn grammars_that_explode_are_refused_or_translated_in_time() {
    let start = std::time::Instant::now();
    let deep = format!("root ::= {}\"a\"{}", "(".repeat(100_000), ")".repeat(100_000));
    let long = format!("root ::= \"{}\"", "a".repeat(30_000));
    let many = format!("root ::= x\nx ::= x {}", "| [a-c]+ \"b\" ".repeat(3000));
    for grammar in [&deep, &long] {
        assert!(translate(grammar, NO_TOKENS).is_err());
    }
    // Rules that double what they name, chains of rules in both orders, and many lexemes in each other's way.
    let doubled: String = (0..64).map(|i| format!("r{i} ::= r{} r{}\n", i + 1, i + 1)).collect();
    let doubled = format!("root ::= r0 | \"(\" root \")\"\n{doubled}r64 ::= \"a\"");
    let chain = |order: &mut dyn Iterator<Item = usize>| {
        let rules: String = order.map(|i| format!("r{i} ::= r{} | \"(\" root\n", i + 1)).collect();
        format!("root ::= r0\n{rules}r3000 ::= \"a\"")
    };
    for grammar in [doubled, many, chain(&mut (0..3000)), chain(&mut (0..3000).rev())] {
        let _ = translate(&grammar, NO_TOKENS);
    }
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// A part of a random grammar of the rules `root`, `a` and `b`.
fn part() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(
        &["\"x\"", "\"y\"", "\"xy\"", "\"\"", "[xy]", "[^x]", "[x-z]*", "[yz]+", "\"yx\"?", "a", "b", "root"]
            [..],
    );
    leaf.prop_map(str::to_owned).prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| parts.join(" ")),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" | "))),
            (inner.clone(), prop::sample::select(&["*", "+", "?", "{2}", "{1,2}"][..]))
                .prop_map(|(part, count)| format!("({part}){count}")),
            (inner, prop::sample::select(&["*", "+"][..]))
                .prop_map(|(part, count)| format!("([xy]+ | {part} | \"z\" root \"z\"){count}")),
        ]
    })
}

/// The places at which a part that begins at each place of a text can end: what GBNF means, by trying all.
struct Meaning<'g> {
    grammar: &'g Grammar,
    text: Vec<char>,
    /// Of each part and place, the ends that are known.
    ends: Vec<Vec<Vec<bool>>>,
}

impl Meaning<'_> {
    fn accepts(grammar: &Grammar, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let places = text.len() + 1;
        let ends = vec![vec![vec![false; places]; places]; grammar.nodes.len()];
        let mut meaning = Meaning { grammar, text, ends };
        // Until nothing new is found.
        loop {
            let mut changed = false;
            for part in 0..grammar.nodes.len() {
                for place in 0..places {
                    let now = meaning.of(part, place);
                    changed |= now != meaning.ends[part][place];
                    meaning.ends[part][place] = now;
                }
            }
            if !changed {
                return meaning.ends[grammar.root][0][places - 1];
            }
        }
    }

    fn after(&self, part: NodeId, places: &[bool]) -> Vec<bool> {
        let mut all = vec![false; places.len()];
        for (place, _) in places.iter().enumerate().filter(|(_, is)| **is) {
            all.iter_mut().zip(&self.ends[part][place]).for_each(|(all, end)| *all |= end);
        }
        all
    }

    fn of(&self, part: NodeId, place: usize) -> Vec<bool> {
        let here = |place: usize| (0..=self.text.len()).map(|i| i == place).collect::<Vec<bool>>();
        let none = vec![false; self.text.len() + 1];
        match &self.grammar.nodes[part] {
            Node::One(chars) => match self.text.get(place) {
                Some(&c) if chars.0.iter().any(|&(from, to)| (from..=to).contains(&u32::from(c))) => {
                    here(place + 1)
                }
                _ => none,
            },
            Node::Token(_) => none,
            Node::Rule(rule) => self.ends[self.grammar.rules[*rule]][place].clone(),
            Node::Sequence(parts) => {
                parts.iter().fold(here(place), |places, &part| self.after(part, &places))
            }
            Node::Choice(parts) => parts.iter().fold(none, |all, &part| {
                all.iter().zip(&self.ends[part][place]).map(|(one, other)| *one || *other).collect()
            }),
            &Node::Repeat { of, least, most } => {
                let mut places = here(place);
                let mut all = if least == 0 { places.clone() } else { none };
                // More than once for each place and count brings nothing new.
                let rounds = most.unwrap_or(least + self.text.len() as u32 + 1);
                for round in 1..=rounds {
                    places = self.after(of, &places);
                    if round >= least {
                        all.iter_mut().zip(&places).for_each(|(all, place)| *all |= place);
                    }
                }
                all
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_translation_accepts_what_the_grammar_means(
        root in part(), a in part(), b in part(),
        texts in prop::collection::vec("[xyz]{0,6}", 12),
    ) {
        // Each rule has an end, so that each begins a text.
        let grammar = format!("root ::= {root} | \"z\"\na ::= {a} | \"x\"\nb ::= \"y\" {b} | \"y\"\n");
        let matcher = matcher(&grammar);
        let meaning = parse(&grammar, NO_TOKENS).unwrap();
        for text in texts {
            prop_assert_eq!(
                accepts(&matcher, &text), Meaning::accepts(&meaning, &text),
                "{:?} and\n{}\n{}", text, grammar, translate(&grammar, NO_TOKENS).unwrap()
            );
        }
    }

    #[test]
    fn no_text_makes_the_parser_fail(
        text in prop::collection::vec(prop::sample::select(&[
            "root", "a", " ", "\n", "::=", "\"", "\\", "[", "]", "^", "-", "(", ")", "*", "+", "?", "{", "}",
            "2", ",", "|", "#", ".", "<", ">", "!", "é", "\\x41", "\\u", "9999", "root ::= ", "a ::= \"x\"\n", "\r",
        ][..]), 0..40)
    ) {
        let _ = translate(&text.concat(), NO_TOKENS);
    }
}
