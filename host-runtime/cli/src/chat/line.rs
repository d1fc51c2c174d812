//! A line of a conversation: something to say, or a command that begins with a slash.

use std::path::PathBuf;

/// A line that was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Words for the model.
    Say(String),
    /// Something for the program to do.
    Do(Command),
}

/// What the program does besides passing words on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Lists the commands.
    Help,
    /// Writes the last answer anew.
    Regenerate,
    /// Takes the last message back, with its answer.
    Undo,
    /// Begins a new conversation.
    Clear,
    /// Writes the conversation to a file.
    Save(PathBuf),
    /// Goes on with the conversation of a file.
    Load(PathBuf),
    /// Shows a picture with the next message.
    Image(PathBuf),
    /// Says what the last answer took.
    Stats,
    /// Ends the program.
    Exit,
}

/// Commands: their names, of which the first is listed; the argument; what they do.
const COMMANDS: [(&[&str], &str, &str); 9] = [
    (&["/regenerate", "/retry"], "", "write the last answer anew"),
    (&["/undo"], "", "take your last message back, with its answer"),
    (&["/clear", "/reset"], "", "begin a new conversation"),
    (&["/save"], "FILE", "write the conversation to a file (JSON)"),
    (&["/load"], "FILE", "go on with the conversation of a file"),
    (&["/image"], "FILE", "show a picture with your next message (--mmproj)"),
    (&["/stats"], "", "say what the last answer took"),
    (&["/help", "/?"], "", "list these commands"),
    (&["/exit", "/quit", "/bye"], "", "leave, as Ctrl-D does"),
];

impl Line {
    /// Reads a line. `None` where nothing was typed.
    ///
    /// # Errors
    /// It begins with a slash and is no command, or one with the wrong argument. A message that begins with a
    /// slash is typed with two.
    pub(super) fn parse(line: &str) -> Result<Option<Self>, String> {
        if let Some(rest) = line.strip_prefix("//") {
            return Ok(Some(Self::Say(format!("/{rest}"))));
        }
        if !line.starts_with('/') {
            return Ok((!line.trim().is_empty()).then(|| Self::Say(line.to_owned())));
        }
        let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let argument = argument.trim();
        let known = COMMANDS.iter().find(|(names, ..)| names.contains(&name));
        let Some((names, wanted, _)) = known else {
            return Err(format!(
                "there is no command {name}; see /help, or type // for a message with a slash"
            ));
        };
        if wanted.is_empty() != argument.is_empty() {
            return Err(match *wanted {
                "" => format!("{name} takes no argument; type it alone"),
                wanted => format!("{name} needs a file: {name} {wanted}"),
            });
        }
        let path = || PathBuf::from(argument);
        Ok(Some(Self::Do(match names[0] {
            "/regenerate" => Command::Regenerate,
            "/undo" => Command::Undo,
            "/clear" => Command::Clear,
            "/save" => Command::Save(path()),
            "/load" => Command::Load(path()),
            "/image" => Command::Image(path()),
            "/stats" => Command::Stats,
            "/help" => Command::Help,
            _ => Command::Exit,
        })))
    }
}

/// The list of commands, a line each.
pub(super) fn help() -> String {
    let mut text = String::new();
    for (names, argument, about) in COMMANDS {
        let usage = format!("{} {argument}", names[0]);
        text += &format!("{usage:14} {about}\n");
    }
    text + "A line that ends with \\ goes on with the next. Ctrl-C stops an answer."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Command {
        match Line::parse(line).unwrap().unwrap() {
            Line::Do(command) => command,
            Line::Say(text) => panic!("{line} says {text}"),
        }
    }

    #[test]
    fn each_command_that_is_listed_is_read_by_all_of_its_names() {
        for (names, argument, _) in COMMANDS {
            let read: Vec<_> =
                names.iter().map(|name| command(format!("{name} {argument}").trim_end())).collect();
            assert!(read.windows(2).all(|pair| pair[0] == pair[1]), "{names:?}: {read:?}");
            assert!(help().contains(names[0]));
        }
        assert_eq!(command("/save  a b.json "), Command::Save("a b.json".into()));
        assert_eq!(command("/bye"), Command::Exit);
    }

    #[test]
    fn what_is_no_command_is_said() {
        assert_eq!(Line::parse(" \t"), Ok(None));
        assert_eq!(Line::parse("a /save b"), Ok(Some(Line::Say("a /save b".to_owned()))));
        assert_eq!(Line::parse("//etc"), Ok(Some(Line::Say("/etc".to_owned()))));
    }

    #[test]
    fn mistakes_are_told_with_a_remedy() {
        for (line, part) in
            [("/etc/passwd", "see /help"), ("/save", "/save FILE"), ("/undo 3", "takes no argument")]
        {
            let error = Line::parse(line).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
