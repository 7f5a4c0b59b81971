//! `payonce completions` and `payonce man`: made from the definition of the commands, so that they can't differ from it.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use super::output::{self, Hinted};

#[derive(Debug, Args)]
#[command(after_help = "For bash: source <(payonce completions bash)")]
pub(super) struct Completions {
    /// For this shell.
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "payonce", &mut script);
        output::data(&String::from_utf8(script)?)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "To read one: payonce man charges resolve | man -l -")]
pub(super) struct Man {
    /// Of this command; of payonce as a whole if left out.
    command: Vec<String>,
}

impl Man {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut root = Cli::command();
        root.build();
        let mut command = &root;
        for name in &self.command {
            command = command.find_subcommand(name).ok_or_else(|| {
                Hinted::new(
                    format!("payonce has no command `{}`", self.command.join(" ")),
                    "`payonce help` lists them",
                )
            })?;
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(command.clone()).render(&mut page)?;
        output::data(&String::from_utf8(page)?)
    }
}
