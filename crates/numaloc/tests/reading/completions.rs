//! What `numaloc completions` completes: bash executes its script, as a terminal does when the tab key is pressed.

use std::process::Command;

use crate::support;

/// What bash offers after `line`, of which the last word is completed.
fn offered(script: &str, line: &[&str]) -> Vec<String> {
    let asked = "COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=()\n\
        _numaloc numaloc \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"\n\
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    // Outside of a completion there are no options of it to set.
    let text = format!("compopt() {{ :; }}\n{script}\n{asked}");
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &text, "bash", "numaloc"])
        .args(line);
    support::ok(&mut bash).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    let script = support::ok(&mut support::numaloc(&["completions", "bash"]));
    for (line, expected) in [
        (&["sho"][..], "show"),
        (&["plan", "--by"], "--by-role"),
        (&["plan", "app.numaloc", "--machine", "sky"], "skylake-4s"),
        (&["show", "app.numaloc", "--machine", "thi"], "this"),
        (&["simulate", "app.numaloc", "--machine", "pur"], "purple"),
        (&["plan", "app.numaloc", "--threads", "tree"], "tree-match"),
        (&["plan", "app.numaloc", "--pages", "loc"], "locality"),
        (&["map", "--policy", "eager"], "eager-map"),
        (&["compare", "--threads", "in-"], "in-order"),
        (&["show", "app.numaloc", "--layer", "write"], "write_read"),
        (&["plan", "app.numaloc", "--export", "kube"], "kubernetes"),
    ] {
        assert_eq!(offered(&script, line), [expected], "{line:?}");
    }
    // Nothing of ours: bash then completes names of files, as the script's last line says.
    assert_eq!(offered(&script, &["show", "app.num"]), [""]);
    assert!(script.contains("-o bashdefault -o default numaloc"));
}

#[test]
fn every_shell_gets_the_values() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = support::ok(&mut support::numaloc(&["completions", shell]));
        // The scripts of the last two name options, not values.
        let values = match shell {
            "elvish" | "powershell" => &["--by-role"][..],
            _ => &["skylake-4s", "tree-match", "write_read", "kubernetes"],
        };
        for value in values {
            assert!(script.contains(value), "{shell}: {value}");
        }
        // Profiles are folders.
        assert!(shell != "zsh" || script.contains(":_files -/' "), "{shell}");
    }
    support::fails(&mut support::numaloc(&["completions", "tcsh"]), 2);
}
