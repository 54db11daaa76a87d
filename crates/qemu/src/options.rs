//! The plugin's arguments, `name=value`; values are percent-encoded because QEMU splits at commas.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use numaloc_trace::{Config, Layer};

use crate::blocks::Grouping;

/// The plugin's own settings, in addition to the engine's [`Config`].
#[derive(Clone, Default)]
pub struct Options {
    /// Path of this library, to load it again after `execve`.
    pub plugin: String,
    /// Path of the program's file, links resolved.
    pub program: String,
    /// The engine's settings, passed on to programs that this one executes.
    pub config: Config,
    /// Register all callbacks but count nothing: measures the cost of QEMU's callbacks alone (`make bench-trace`).
    pub floor: bool,
    /// How accesses are grouped.
    pub group: Grouping,
}

static OPTIONS: RwLock<Option<Options>> = RwLock::new(None);

/// The options of this process.
pub fn get() -> Options {
    let guard: RwLockReadGuard<_> = OPTIONS.read().unwrap_or_else(PoisonError::into_inner);
    guard.clone().unwrap_or_default()
}

/// Parses the arguments from QEMU and stores them for [`get`].
pub fn parse(arguments: &[String]) -> Result<(Config, String), String> {
    let mut options = Options::default();
    let config = &mut options.config;
    config.frontend = "qemu".to_owned();
    for argument in arguments {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        let value = decode(value);
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("plugin argument {name}={value} is not a number"))
        };
        match name {
            "folder" => config.folder = value.into(),
            "plugin" => options.plugin = value,
            "program" => options.program = value,
            "path" => config.path = value,
            "image" => config.image = number()? as u32,
            "threads" => config.created.0 = number()? as u32,
            "processes" => config.created.1 = number()? as u32,
            "clock" => config.clock = number()?,
            "wall" => config.virtual_clock = number()? == 0,
            "origin" => config.origin_ns = number()?,
            "since" => config.origin_ns = numaloc_trace::engine::origin_since(number()?),
            "slice" => config.slice = number()?.max(1),
            "slices" => config.slices = number()?.max(1),
            "layers" => {
                let layers = value
                    .split('+')
                    .map(Layer::from_name)
                    .collect::<Option<_>>();
                config.layers = layers.ok_or_else(|| format!("unknown layer in {value}"))?;
            }
            "floor" => options.floor = number()? != 0,
            "group" => {
                let group = Grouping::from_name(&value);
                options.group = group.ok_or_else(|| format!("unknown grouping {value}"))?;
            }
            "engine" => config.decode(&value)?,
            "line" => config.line_shift = number()?.clamp(3, 12) as u32,
            _ => return Err(format!("unknown plugin argument {name}")),
        }
    }
    let answer = (options.config.clone(), options.program.clone());
    *OPTIONS.write().unwrap_or_else(PoisonError::into_inner) = Some(options);
    Ok(answer)
}

/// The arguments in QEMU's syntax: `-plugin FILE,name=value,...`.
pub fn encode(options: &Options) -> String {
    let config = &options.config;
    let mut text = options.plugin.replace(',', ",,");
    for (name, value) in [
        ("folder", config.folder.to_string_lossy().into_owned()),
        ("plugin", options.plugin.clone()),
        ("program", options.program.clone()),
        ("path", config.path.clone()),
        ("image", config.image.to_string()),
        ("threads", config.created.0.to_string()),
        ("processes", config.created.1.to_string()),
        ("clock", config.clock.to_string()),
        ("wall", u8::from(!config.virtual_clock).to_string()),
        ("origin", config.origin_ns.to_string()),
        ("slice", config.slice.to_string()),
        ("slices", config.slices.to_string()),
        (
            "layers",
            config
                .layers
                .iter()
                .map(|layer| layer.name())
                .collect::<Vec<_>>()
                .join("+"),
        ),
        ("line", config.line_shift.to_string()),
        ("group", options.group.name().to_owned()),
        ("engine", config.encode()),
    ] {
        text += &format!(",{name}={}", escape(&value));
    }
    text
}

fn escape(value: &str) -> String {
    value
        .replace('%', "%25")
        .replace(',', "%2C")
        .replace('=', "%3D")
}

fn decode(value: &str) -> String {
    value
        .replace("%3D", "=")
        .replace("%2C", ",")
        .replace("%25", "%")
}
