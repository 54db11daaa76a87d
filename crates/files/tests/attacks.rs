//! What another user can try against outputs in folders that this user can change. Run by root, each attack is made by
//! a process of another user, and the loot is root's; run by others, attacks that need a second user are left out.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use numaloc_files::{FileOutput, FolderKind, FolderOutput, OutputError};

/// The user `nobody`.
const OTHER: u32 = 65534;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder of the attacker, and next to it one of ours that nobody else may enter.
struct Scene {
    _root: tempfile::TempDir,
    theirs: PathBuf,
    ours: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        let (theirs, ours) = (root.path().join("theirs"), root.path().join("ours"));
        fs::create_dir(&theirs).unwrap();
        if is_root() {
            chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
        }
        fs::create_dir(&ours).unwrap();
        fs::set_permissions(&ours, Permissions::from_mode(0o700)).unwrap();
        fs::write(ours.join("key"), "secret").unwrap();
        fs::write(ours.join("1.trace"), "secret").unwrap();
        Self {
            _root: root,
            theirs,
            ours,
        }
    }

    /// Runs a shell script of the attacker in their folder.
    fn attack(&self, script: &str) {
        attack(&self.theirs, script);
    }

    /// Nothing of ours was changed, moved or added.
    fn is_untouched(&self) {
        let mut names: Vec<_> = fs::read_dir(&self.ours)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["1.trace", "key"]);
        for name in names {
            assert_eq!(fs::read(self.ours.join(name)).unwrap(), b"secret");
        }
    }
}

fn attack(folder: &Path, script: &str) {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(folder);
    if is_root() {
        command.uid(OTHER).gid(OTHER);
    }
    assert!(command.status().unwrap().success(), "{script}");
}

/// Whether a second user is at hand.
fn has_another_user() -> bool {
    if !is_root() {
        eprintln!("not run: only root can be attacked by another user here");
    }
    is_root()
}

const KIND: FolderKind = FolderKind {
    name: "numaloc test",
    mark: "meta",
    owns: |name| {
        during_the_listing();
        ["meta", "table", "traces"].map(Path::new).contains(&name)
            || name.starts_with("traces") && name.extension().is_some_and(|e| e == "trace")
    },
};

/// The folder that is attacked while it is listed, and the script.
static LISTING: Mutex<Option<(PathBuf, &str)>> = Mutex::new(None);

fn during_the_listing() {
    let attacked = LISTING.lock().unwrap().take();
    if let Some((folder, script)) = attacked {
        attack(&folder, script);
    }
}

/// Replaces the folder `p` of the attacker, who runs `script` while we look at its names.
fn replace_while(scene: &Scene, script: &'static str) -> Result<(), OutputError> {
    FolderOutput::check(&scene.theirs.join("p"), true, KIND)?.fill(|folder| {
        fs::write(folder.join("meta"), "new").unwrap();
        *LISTING.lock().unwrap() = Some((scene.theirs.clone(), script));
        Ok(())
    })
}

/// Serialises the tests that use [`LISTING`].
static LISTINGS: Mutex<()> = Mutex::new(());

#[test]
fn a_link_put_in_place_of_a_listed_folder_is_not_entered() {
    let _alone = LISTINGS.lock();
    let scene = Scene::new();
    scene.attack("mkdir p p/traces; echo x > p/meta; echo x > p/traces/1.trace");
    let result = replace_while(
        &scene,
        "cd .p.partial-*; mv traces aside; ln -s ../../ours traces",
    );
    assert!(LISTING.lock().unwrap().is_none(), "no attack was made");
    scene.is_untouched();
    // The new profile is in place whatever became of the old one.
    assert_eq!(
        fs::read(scene.theirs.join("p/meta")).unwrap(),
        b"new",
        "{result:?}"
    );
}

#[test]
fn a_folder_of_ours_renamed_into_the_place_of_a_listed_one_is_not_emptied() {
    if !has_another_user() {
        return;
    }
    let _alone = LISTINGS.lock();
    let scene = Scene::new();
    // Whoever owns a folder can rename what others have in it.
    let inside = scene.theirs.join("inside");
    scene.attack("mkdir p p/traces; echo x > p/meta; echo x > p/traces/1.trace");
    fs::rename(&scene.ours, &inside).unwrap();
    fs::rename(&inside, scene.theirs.join("p/mine")).unwrap();
    let refused = replace_while(
        &scene,
        "cd .p.partial-*; mv traces aside; mv -T mine traces",
    );
    assert!(LISTING.lock().unwrap().is_none(), "no attack was made");
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("another user") || refused.contains("No such file"),
        "{refused}"
    );
    let kept: Vec<_> = fs::read_dir(&scene.theirs)
        .unwrap()
        .flat_map(|at| {
            [
                at.as_ref().unwrap().path().join("traces"),
                at.unwrap().path().join("mine"),
            ]
        })
        .filter(|at| at.join("key").exists())
        .collect();
    assert_eq!(kept.len(), 1, "our folder is whole in one place");
    assert_eq!(fs::read(kept[0].join("1.trace")).unwrap(), b"secret");
    assert_eq!(fs::metadata(&kept[0]).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn what_is_written_stays_in_the_new_folder_if_its_name_is_given_away() {
    if !has_another_user() {
        return;
    }
    let scene = Scene::new();
    let output = FolderOutput::check(&scene.theirs.join("p"), false, KIND).unwrap();
    let result = output.fill::<OutputError>(|folder| {
        scene.attack("at=$(echo .p.partial-*); mv $at aside; ln -s ../ours $at");
        fs::write(folder.join("table"), "new").unwrap();
        Ok(())
    });
    assert!(result.is_err(), "the name is that of the attacker's link");
    scene.is_untouched();
}

#[test]
fn a_planted_link_is_not_followed() {
    if !has_another_user() {
        return;
    }
    let scene = Scene::new();
    scene.attack("ln -s ../ours/new out; ln -s ../ours/key known; ln -s ../ours folder");
    for name in ["out", "known", "folder/new", "folder/key"] {
        for path in [
            scene.theirs.join(name),
            scene.theirs.join("./../theirs").join(name),
        ] {
            let refused = FileOutput::check(&path, true).unwrap_err().to_string();
            assert!(refused.contains("symbolic link"), "{refused}");
        }
    }
    let refused = FolderOutput::check(&scene.theirs.join("folder/p"), true, KIND).unwrap_err();
    assert!(refused.to_string().contains("symbolic link"), "{refused}");
    scene.is_untouched();
}

#[test]
fn a_link_planted_after_the_check_is_not_followed() {
    let scene = Scene::new();
    let output = FileOutput::check(&scene.theirs.join("out"), false).unwrap();
    scene.attack("ln -s ../ours/key out");
    output.write(b"new").unwrap_err();
    scene.attack("rm out; echo x > out; chmod 666 out");
    let output = FileOutput::check(&scene.theirs.join("out"), true).unwrap();
    scene.attack("rm out; ln -s ../ours/key out");
    let result = output.write(b"new");
    assert_eq!(result.is_err(), is_root(), "{result:?}");
    if is_root() {
        scene.is_untouched();
    }
}

#[test]
fn a_fifo_of_another_user_gets_nothing() {
    if !has_another_user() {
        return;
    }
    let scene = Scene::new();
    scene.attack("mkfifo out; chmod 666 out");
    let refused = FileOutput::check(&scene.theirs.join("out"), true).unwrap_err();
    assert!(
        refused.to_string().contains("FIFO of another user"),
        "{refused}"
    );
    // A stream that is exchanged between the check and the end.
    let ours = scene.ours.join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&ours)
            .status()
            .unwrap()
            .success()
    );
    fs::rename(&ours, scene.theirs.join("stream")).unwrap();
    let output = FileOutput::check(&scene.theirs.join("stream"), true).unwrap();
    scene.attack("mv stream aside; mkfifo stream; (timeout 20 cat stream > got &)");
    let refused = output.write(b"new").unwrap_err();
    assert!(refused.to_string().contains("another process"), "{refused}");
}

#[test]
fn a_private_file_is_private_at_any_time_and_stays_so() {
    let scene = Scene::new();
    let path = scene.theirs.join("out");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4600)).unwrap();
    FileOutput::check(&path, true)
        .unwrap()
        .write(b"new")
        .unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
}
