use super::*;

#[test]
fn each_command_has_examples_that_it_takes() {
    for command in [Arguments::command(), cuda_checkpoint::command_line()] {
        assert_eq!(documents::faults(&command), [""; 0]);
    }
}

#[test]
fn each_command_tells_its_exit_codes() {
    let mut command = Arguments::command();
    command.build();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    for verb in verbs.filter(|verb| !verb.has_subcommands()) {
        let about = verb.get_long_about().map(ToString::to_string);
        let about = about.unwrap_or_default();
        assert!(
            about.contains("\n\nExit code 0: "),
            "{}: {about}",
            verb.get_name()
        );
    }
}
