//! Shows a page in the user's browser, or says where it is.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::ui::Ui;

/// How long the opener may take to fail: one that still runs then is taken to work.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens `page` with `xdg-open`; one line says what was done.
pub fn open(page: &Path, ui: &Ui) {
    let page = page.canonicalize().unwrap_or_else(|_| page.to_owned());
    match opened(&page) {
        Ok(()) => ui.remark(format_args!("opened {} in the browser", page.display())),
        Err(why) => ui.remark(format_args!("{why}: the report is {}", page.display())),
    }
}

fn opened(page: &Path) -> Result<(), String> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        return Err("no display".to_owned());
    }
    let opener = numaloc_launch::find("xdg-open".as_ref()).map_err(|_| "no xdg-open".to_owned())?;
    let failed = |error: std::io::Error| format!("cannot run xdg-open: {error}");
    // A group of its own: Ctrl-C in this terminal does not close the browser.
    let mut child = Command::new(opener)
        .arg(page)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        match child.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("xdg-open ended with {status}")),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    Ok(())
}
