//! The short way to a text gives what the long way does, and conversations compute only what is new in them.

use hexflash::chat::{Message, RenderOptions};
use hexflash::generate::{Finish, Generated};
use hexflash::text::{CHATML, TextError};
use hexflash::weights::CachePolicy;
use hexflash::{Blame, Drafts, Error, Limits, Model, ModelOptions};
use hexflash_e2e::repo_file;

const PROMPT: &str = "def __repr__(self):\n        return ";

fn options() -> ModelOptions {
    ModelOptions { cache: CachePolicy::Off, ..ModelOptions::default() }.temperature(0.0)
}

fn open(options: &ModelOptions) -> Model {
    options.open(repo_file("models/tiny-hybrid-q8_0.gguf")).unwrap()
}

fn drafts() -> [Drafts; 3] {
    [Drafts::None, Drafts::NGrams, Drafts::Model(repo_file("models/tiny-hybrid-dflash-q8_0.gguf"))]
}

fn limits(n: usize) -> Limits {
    Limits { ignore_eos: true, ..Limits::tokens(n) }
}

#[test]
fn pieces_are_the_text_whoever_drafts() {
    let mut texts = Vec::new();
    for drafts in drafts() {
        let mut model = open(&ModelOptions { drafts, ..options() });
        let whole = model.complete(PROMPT, limits(60)).unwrap().finish().unwrap();
        assert_eq!((whole.tokens.len(), whole.finish_reason), (60, Finish::Length));
        let pieces: Vec<String> = model.complete(PROMPT, limits(60)).unwrap().map(Result::unwrap).collect();
        assert!(pieces.len() > 30 && pieces.iter().all(|piece| !piece.is_empty()), "{pieces:?}");
        assert_eq!(pieces.concat(), whole.text);
        texts.push(whole.text);
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

/// Dropped anywhere, before the first piece, too: the next text is not affected, nor are others with the same
/// limits.
#[test]
fn an_answer_that_is_dropped_leaves_nothing_behind() {
    for drafts in drafts() {
        let mut model = open(&ModelOptions { drafts, ..options() });
        let limits = limits(40);
        let expected = model.complete(PROMPT, limits.clone()).unwrap().finish().unwrap();
        for n in [0, 1, 7] {
            let mut answer = model.complete(PROMPT, limits.clone()).unwrap();
            let said: String = answer.by_ref().take(n).map(Result::unwrap).collect();
            assert!(expected.text.starts_with(&said));
            drop(answer);
            let context = model.engine().history().len();
            assert!(n > 0 || context == 0, "nothing is computed before it is asked for");
        }
        let again = model.complete(PROMPT, limits.clone()).unwrap().finish().unwrap();
        assert_eq!(again.tokens, expected.tokens);
    }
}

fn ask(model: &mut Model, n: usize) -> (Vec<Generated>, Vec<Message>) {
    let mut chat = model.chat_with(CHATML);
    chat.add("system", "You write Python.");
    let questions = ["def quicksort(", "import os\n", "class Stack:"];
    let answers = questions.map(|question| chat.say(question, limits(n)).unwrap().finish().unwrap());
    (answers.to_vec(), chat.messages().to_vec())
}

/// Each turn is what a model says that reads the whole conversation at once; but only what is new is
/// computed.
#[test]
fn a_conversation_computes_what_is_new() {
    for drafts in drafts() {
        let options = ModelOptions { drafts, ..options() };
        let (mut model, mut fresh) = (open(&options), open(&options));
        let (answers, messages) = ask(&mut model, 12);
        assert_eq!(messages.len(), 7);
        let mut kept = 0;
        for (turn, answer) in answers.iter().enumerate() {
            let before = &messages[..2 + 2 * turn];
            let text = fresh.text();
            let all = text.encode_chat(CHATML, before, &RenderOptions::for_answer()).unwrap();
            assert_eq!(messages[2 + 2 * turn].content, answer.text);
            assert!(answer.stats.prompt_tokens <= all.len());
            kept += usize::from(answer.stats.prompt_tokens < all.len());
            // The same conversation, rendered as text: its special tokens are recognised.
            let engine = fresh.engine();
            engine.reset();
            engine.prefill(&all, |_| {}).unwrap();
            let mut expected = vec![engine.argmax(0)];
            while expected.len() < answer.tokens.len() {
                engine.decode(expected[expected.len() - 1]).unwrap();
                expected.push(engine.argmax(0));
            }
            assert_eq!(answer.tokens, expected, "turn {turn}");
            assert_eq!(answer.stats.context_tokens as usize, all.len() + answer.tokens.len(), "turn {turn}");
        }
        assert!(kept > 0, "no turn found the context of the one before it");
    }
}

#[test]
fn what_a_template_refuses_is_not_said() {
    let mut model = open(&options());
    let error = model.chat().err().unwrap();
    assert!(matches!(error, Error::Text(TextError::NoChatTemplate)), "{error}");
    let mut chat = model.chat_with("{{ raise_exception('no') }}");
    let error = chat.say("hello", limits(1)).err().unwrap();
    assert_eq!(error.blame(), Blame::Input);
    assert!(chat.messages().is_empty());
}

/// A prompt that does not fit is an error, and the model goes on with the next one.
#[test]
fn after_an_error_there_is_a_next_text() {
    let mut model = open(&options().context(16));
    let long = PROMPT.repeat(8);
    let mut answer = model.complete(&long, limits(4)).unwrap();
    let error = answer.next().unwrap().unwrap_err();
    assert!(error.to_string().contains("do not fit the context of 16"), "{error}");
    assert!(!error.to_string().contains("-c"), "the library has no flags: {error}");
    assert!(answer.next().is_none());
    drop(answer);
    assert_eq!(model.complete("x", limits(3)).unwrap().finish().unwrap().tokens.len(), 3);
}
