//! The modules of a crate with their files, parsed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A module's path from the crate's root; the root is empty.
pub type ModulePath = Vec<String>;

pub struct Crate {
    pub files: Vec<Module>,
    by_path: HashMap<ModulePath, usize>,
}

pub struct Module {
    pub path: ModulePath,
    /// The file's name below `src`.
    pub name: String,
    pub syntax: syn::File,
}

impl Crate {
    /// Parses all files below `source` but for tests and programs of their own (`bin`, `main.rs`
    /// beside a `lib.rs`).
    pub fn read(source: &Path) -> Result<Crate, String> {
        let mut names = Vec::new();
        collect(source, source, &mut names)?;
        names.sort();
        let has_library = source.join("lib.rs").exists();
        let mut files = Vec::new();
        for name in names {
            if is_apart(&name, has_library) {
                continue;
            }
            let text = std::fs::read_to_string(source.join(&name))
                .map_err(|error| format!("{}: {error}", name.display()))?;
            let syntax =
                syn::parse_file(&text).map_err(|error| format!("{}: {error}", name.display()))?;
            files.push(Module {
                path: module_path(&name),
                name: name.to_string_lossy().into_owned(),
                syntax,
            });
        }
        Ok(Crate::of(files))
    }

    pub fn of(files: Vec<Module>) -> Crate {
        let by_path = files
            .iter()
            .enumerate()
            .map(|(index, module)| (module.path.clone(), index))
            .collect();
        Crate { files, by_path }
    }

    pub fn name_of(&self, file: usize) -> &str {
        &self.files[file].name
    }

    pub fn find(&self, path: &[String]) -> Option<usize> {
        self.by_path.get(path).copied()
    }
}

fn collect(root: &Path, folder: &Path, names: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.is_dir() {
            collect(root, &path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && let Ok(name) = path.strip_prefix(root)
        {
            names.push(name.to_path_buf());
        }
    }
    Ok(())
}

fn is_apart(name: &Path, has_library: bool) -> bool {
    let is_test = |part: &str| part == "tests" || part == "bin" || part == "tests.rs";
    name.iter().any(|part| part.to_str().is_some_and(is_test))
        || (has_library && name == Path::new("main.rs"))
}

fn module_path(name: &Path) -> ModulePath {
    let mut path: ModulePath = name
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let last = path.last().map(String::as_str);
    let is_folder =
        last == Some("mod") || (path.len() == 1 && matches!(last, Some("lib" | "main")));
    if is_folder {
        path.pop();
    }
    path
}
