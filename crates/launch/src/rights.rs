//! Programs whose file gives them rights that the process executing them does not have. A recorder that stands between
//! the kernel and such a program cannot pass these rights on.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::StatVfsMountFlags;

const SET_USER: u32 = 0o4000;
/// The bit for the group counts only together with that for executing.
const SET_GROUP: u32 = 0o2010;

/// How executing a file changes this process's rights, as what the program is; `None` if it does not.
#[must_use]
pub fn gained(file: &File) -> Option<&'static str> {
    let data = file.metadata().ok()?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let set_user = data.mode() & SET_USER != 0 && data.uid() != user.as_raw();
    let set_group = data.mode() & SET_GROUP == SET_GROUP && data.gid() != group.as_raw();
    // Root has all capabilities without its files.
    let capable = !user.is_root() && {
        let mut value = [0; 64];
        rustix::fs::fgetxattr(file, "security.capability", &mut value[..]).is_ok()
    };
    let kind = match (set_user, set_group, capable) {
        (true, _, _) => "set-user-id",
        (_, true, _) => "set-group-id",
        (_, _, true) => "given capabilities by its file",
        _ => return None,
    };
    let mounted = rustix::fs::fstatvfs(file).map(|data| data.f_flag);
    let ignored = mounted.is_ok_and(|flags| flags.contains(StatVfsMountFlags::NOSUID));
    (!ignored && !gains_nothing()).then_some(kind)
}

/// Whether this process has renounced new rights (`PR_SET_NO_NEW_PRIVS`).
fn gains_nothing() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix("NoNewPrivs:"));
    value.is_some_and(|value| value.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::gained;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_of_another_group_gives_its_group_only_if_it_can_be_executed_by_it() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let file = File::create(&path).unwrap();
        let set = |owner: (u32, u32), mode: u32| {
            std::os::unix::fs::chown(&path, Some(owner.0), Some(owner.1)).unwrap();
            file.set_permissions(Permissions::from_mode(mode)).unwrap();
            gained(&file)
        };
        assert_eq!(set((0, 0), 0o6755), None);
        assert_eq!(set((0, 42), 0o2755), Some("set-group-id"));
        assert_eq!(set((0, 42), 0o2745), None);
        assert_eq!(set((42, 0), 0o4755), Some("set-user-id"));
        assert_eq!(set((42, 42), 0o755), None);
    }
}
