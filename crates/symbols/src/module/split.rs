//! Split DWARF: a skeleton unit in; the full unit, from a `.dwp` package or a `.dwo` file, out.

use super::{Module, Reader};
use crate::elf::Elf;
use crate::{Bytes, Error};
use gimli::{Dwarf, DwarfPackage, LittleEndian};
use std::path::{Path, PathBuf};

/// A full unit with its sections.
pub(super) type Full = Box<(Dwarf<Reader>, gimli::Unit<Reader>)>;

/// The full unit of a skeleton; none if its file isn't found.
pub(super) fn full_unit(
    module: &Module,
    parent: &Dwarf<Reader>,
    package: Option<&DwarfPackage<Reader>>,
    skeleton: &gimli::Unit<Reader>,
) -> Result<Option<Full>, Error> {
    let Some(id) = skeleton.dwo_id else {
        return Ok(None);
    };
    let Some(name) = skeleton.dwo_name()? else {
        return Ok(None);
    };
    let mut dwarf = match package {
        Some(package) => package.find_cu(id, parent)?,
        None => None,
    };
    if dwarf.is_none() {
        let text = |reader: Reader| PathBuf::from(String::from_utf8_lossy(reader.bytes()).as_ref());
        let name = text(parent.attr_string(skeleton, name)?);
        let home = skeleton.comp_dir.clone().map(text).unwrap_or_default();
        // Where it was made, else beside the program.
        let beside = |file: &Path| Some(file.parent()?.join(name.file_name()?));
        let candidates = [
            Some(home.join(&name)),
            beside(module.path()),
            beside(module.name()),
        ];
        let found = candidates
            .into_iter()
            .flatten()
            .find_map(|path| Elf::open(&path).ok());
        let Some(found) = found else { return Ok(None) };
        let mut loaded = Dwarf::load(|id| match id.dwo_name() {
            Some(name) => found.data(name),
            None => Ok(Reader::new(Bytes::from(Vec::new()), LittleEndian)),
        })?;
        loaded.make_dwo(parent);
        dwarf = Some(loaded);
    }
    let Some(dwarf) = dwarf else { return Ok(None) };
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let mut unit = dwarf.unit(header)?;
        if unit.dwo_id == Some(id) {
            unit.copy_relocated_attributes(skeleton);
            return Ok(Some(Box::new((dwarf, unit))));
        }
    }
    Ok(None)
}

/// The package beside a program that holds all its full units.
pub(super) fn package(module: &Module) -> Option<DwarfPackage<Reader>> {
    let named = |path: &Path| {
        let mut name = path.as_os_str().to_owned();
        name.push(".dwp");
        PathBuf::from(name)
    };
    let debug = module.debug_path().map(named);
    let candidates = [
        Some(named(module.path())),
        Some(named(module.name())),
        debug,
    ];
    let found = candidates
        .into_iter()
        .flatten()
        .find_map(|path| Elf::open(&path).ok())?;
    let empty = || Reader::new(Bytes::from(Vec::new()), LittleEndian);
    let load = |id: gimli::SectionId| match id.dwo_name() {
        Some(name) => found.data(name),
        None => Ok(empty()),
    };
    DwarfPackage::load::<_, Error>(load, empty()).ok()
}
