//! Registers in gdb's order and format. In: [`Registers`] of a guest thread. Out: bytes for `g` and
//! `p`, the description that tells gdb what they are, and the way back for `G` and `P`.

use clew_timeline::Registers;

/// Tells gdb the order that is used here. The first 24 are as in gdb's own numbering, which conditions use.
pub fn description() -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target>\
         <architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi>",
    );
    let mut feature = "";
    for (number, register) in ALL.iter().enumerate() {
        if register.feature != feature {
            if !feature.is_empty() {
                xml.push_str("</feature>");
            }
            feature = register.feature;
            xml.push_str(&format!("<feature name=\"org.gnu.gdb.i386.{feature}\">"));
            xml.push_str(types(feature));
        }
        let Register {
            name, kind, group, ..
        } = register;
        let group = match group {
            Some(group) => format!(" group=\"{group}\""),
            None => String::new(),
        };
        let bits = register.len * 8;
        xml.push_str(&format!(
            "<reg name=\"{name}\" bitsize=\"{bits}\" type=\"{kind}\"{group} regnum=\"{number}\"/>"
        ));
    }
    xml.push_str("</feature></target>");
    xml
}

fn types(feature: &str) -> &'static str {
    match feature {
        "core" => concat!(
            "<flags id=\"i386_eflags\" size=\"4\">",
            "<field name=\"CF\" start=\"0\" end=\"0\"/><field name=\"\" start=\"1\" end=\"1\"/>",
            "<field name=\"PF\" start=\"2\" end=\"2\"/><field name=\"AF\" start=\"4\" end=\"4\"/>",
            "<field name=\"ZF\" start=\"6\" end=\"6\"/><field name=\"SF\" start=\"7\" end=\"7\"/>",
            "<field name=\"TF\" start=\"8\" end=\"8\"/><field name=\"IF\" start=\"9\" end=\"9\"/>",
            "<field name=\"DF\" start=\"10\" end=\"10\"/><field name=\"OF\" start=\"11\" end=\"11\"/>",
            "<field name=\"NT\" start=\"14\" end=\"14\"/><field name=\"RF\" start=\"16\" end=\"16\"/>",
            "<field name=\"VM\" start=\"17\" end=\"17\"/><field name=\"AC\" start=\"18\" end=\"18\"/>",
            "<field name=\"VIF\" start=\"19\" end=\"19\"/><field name=\"VIP\" start=\"20\" end=\"20\"/>",
            "<field name=\"ID\" start=\"21\" end=\"21\"/></flags>",
        ),
        "sse" => concat!(
            "<vector id=\"v4f\" type=\"ieee_single\" count=\"4\"/>",
            "<vector id=\"v2d\" type=\"ieee_double\" count=\"2\"/>",
            "<vector id=\"v16i8\" type=\"int8\" count=\"16\"/>",
            "<vector id=\"v8i16\" type=\"int16\" count=\"8\"/>",
            "<vector id=\"v4i32\" type=\"int32\" count=\"4\"/>",
            "<vector id=\"v2i64\" type=\"int64\" count=\"2\"/>",
            "<union id=\"vec128\">",
            "<field name=\"v4_float\" type=\"v4f\"/><field name=\"v2_double\" type=\"v2d\"/>",
            "<field name=\"v16_int8\" type=\"v16i8\"/><field name=\"v8_int16\" type=\"v8i16\"/>",
            "<field name=\"v4_int32\" type=\"v4i32\"/><field name=\"v2_int64\" type=\"v2i64\"/>",
            "<field name=\"uint128\" type=\"uint128\"/></union>",
            "<flags id=\"i386_mxcsr\" size=\"4\">",
            "<field name=\"IE\" start=\"0\" end=\"0\"/><field name=\"DE\" start=\"1\" end=\"1\"/>",
            "<field name=\"ZE\" start=\"2\" end=\"2\"/><field name=\"OE\" start=\"3\" end=\"3\"/>",
            "<field name=\"UE\" start=\"4\" end=\"4\"/><field name=\"PE\" start=\"5\" end=\"5\"/>",
            "<field name=\"DAZ\" start=\"6\" end=\"6\"/><field name=\"IM\" start=\"7\" end=\"7\"/>",
            "<field name=\"DM\" start=\"8\" end=\"8\"/><field name=\"ZM\" start=\"9\" end=\"9\"/>",
            "<field name=\"OM\" start=\"10\" end=\"10\"/><field name=\"UM\" start=\"11\" end=\"11\"/>",
            "<field name=\"PM\" start=\"12\" end=\"12\"/><field name=\"FZ\" start=\"15\" end=\"15\"/>",
            "</flags>",
        ),
        _ => "",
    }
}

/// Where a register's value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Of [`Registers::words`].
    Word(usize),
    /// Always this: user programs on Linux have no choice.
    Fixed(u32),
    /// The number of the call that the thread waits in.
    Waits,
    /// Of the XSAVE area: where it is, which component, and its bytes there.
    Extended {
        at: usize,
        component: u8,
        len: usize,
    },
    /// The tag word, which XSAVE keeps in a short form.
    Tags,
}

#[derive(Clone, Copy, Debug)]
struct Register {
    name: &'static str,
    len: usize,
    kind: &'static str,
    group: Option<&'static str>,
    feature: &'static str,
    place: Place,
}

const X87: u8 = 0;
const SSE: u8 = 1;
const AVX: u8 = 2;
/// Of the XSAVE area.
const TAGS: usize = 4;
const ST0: usize = 32;
const XMM0: usize = 160;
const COMPONENTS: usize = 512;
const YMMH0: usize = 576;
const AREA: usize = 832;

const fn word(name: &'static str, kind: &'static str, word: usize) -> Register {
    Register {
        name,
        len: 8,
        kind,
        group: None,
        feature: "core",
        place: Place::Word(word),
    }
}

const fn segment(name: &'static str, value: u32) -> Register {
    Register {
        name,
        len: 4,
        kind: "int32",
        group: None,
        feature: "core",
        place: Place::Fixed(value),
    }
}

const fn st(name: &'static str, number: usize) -> Register {
    Register {
        name,
        len: 10,
        kind: "i387_ext",
        group: None,
        feature: "core",
        place: Place::Extended {
            at: ST0 + 16 * number,
            component: X87,
            len: 10,
        },
    }
}

const fn x87(name: &'static str, at: usize, len: usize) -> Register {
    Register {
        name,
        len: 4,
        kind: "int",
        group: Some("float"),
        feature: "core",
        place: Place::Extended {
            at,
            component: X87,
            len,
        },
    }
}

const fn xmm(name: &'static str, number: usize) -> Register {
    Register {
        name,
        len: 16,
        kind: "vec128",
        group: None,
        feature: "sse",
        place: Place::Extended {
            at: XMM0 + 16 * number,
            component: SSE,
            len: 16,
        },
    }
}

const fn ymmh(name: &'static str, number: usize) -> Register {
    Register {
        name,
        len: 16,
        kind: "uint128",
        group: None,
        feature: "avx",
        place: Place::Extended {
            at: YMMH0 + 16 * number,
            component: AVX,
            len: 16,
        },
    }
}

const fn other(
    name: &'static str,
    len: usize,
    kind: &'static str,
    feature: &'static str,
    place: Place,
) -> Register {
    Register {
        name,
        len,
        kind,
        group: None,
        feature,
        place,
    }
}

/// gdb's order; the words are in the hardware's.
static ALL: [Register; 76] = [
    word("rax", "int64", 0),
    word("rbx", "int64", 3),
    word("rcx", "int64", 1),
    word("rdx", "int64", 2),
    word("rsi", "int64", 6),
    word("rdi", "int64", 7),
    word("rbp", "data_ptr", 5),
    word("rsp", "data_ptr", 4),
    word("r8", "int64", 8),
    word("r9", "int64", 9),
    word("r10", "int64", 10),
    word("r11", "int64", 11),
    word("r12", "int64", 12),
    word("r13", "int64", 13),
    word("r14", "int64", 14),
    word("r15", "int64", 15),
    word("rip", "code_ptr", RIP),
    other("eflags", 4, "i386_eflags", "core", Place::Word(17)),
    segment("cs", 0x33),
    segment("ss", 0x2b),
    segment("ds", 0),
    segment("es", 0),
    segment("fs", 0),
    segment("gs", 0),
    st("st0", 0),
    st("st1", 1),
    st("st2", 2),
    st("st3", 3),
    st("st4", 4),
    st("st5", 5),
    st("st6", 6),
    st("st7", 7),
    x87("fctrl", 0, 2),
    x87("fstat", 2, 2),
    Register {
        place: Place::Tags,
        ..x87("ftag", TAGS, 1)
    },
    x87("fiseg", 12, 2),
    x87("fioff", 8, 4),
    x87("foseg", 20, 2),
    x87("fooff", 16, 4),
    x87("fop", 6, 2),
    xmm("xmm0", 0),
    xmm("xmm1", 1),
    xmm("xmm2", 2),
    xmm("xmm3", 3),
    xmm("xmm4", 4),
    xmm("xmm5", 5),
    xmm("xmm6", 6),
    xmm("xmm7", 7),
    xmm("xmm8", 8),
    xmm("xmm9", 9),
    xmm("xmm10", 10),
    xmm("xmm11", 11),
    xmm("xmm12", 12),
    xmm("xmm13", 13),
    xmm("xmm14", 14),
    xmm("xmm15", 15),
    Register {
        kind: "i386_mxcsr",
        group: Some("vector"),
        ..other(
            "mxcsr",
            4,
            "int",
            "sse",
            Place::Extended {
                at: 24,
                component: SSE,
                len: 4,
            },
        )
    },
    Register {
        group: Some("system"),
        ..other("orig_rax", 8, "int", "linux", Place::Waits)
    },
    other("fs_base", 8, "int", "segments", Place::Word(18)),
    other("gs_base", 8, "int", "segments", Place::Word(19)),
    ymmh("ymm0h", 0),
    ymmh("ymm1h", 1),
    ymmh("ymm2h", 2),
    ymmh("ymm3h", 3),
    ymmh("ymm4h", 4),
    ymmh("ymm5h", 5),
    ymmh("ymm6h", 6),
    ymmh("ymm7h", 7),
    ymmh("ymm8h", 8),
    ymmh("ymm9h", 9),
    ymmh("ymm10h", 10),
    ymmh("ymm11h", 11),
    ymmh("ymm12h", 12),
    ymmh("ymm13h", 13),
    ymmh("ymm14h", 14),
    ymmh("ymm15h", 15),
];

/// Words of [`Registers`] that this crate cares about.
pub const RIP: usize = 16;
pub const RSP: usize = 4;

/// gdb's numbers of what a stop reply tells along: frame pointer, stack pointer, pc.
pub const EXPEDITED: [usize; 3] = [6, 7, 16];

/// The value of one register, in gdb's number and byte order. `waits`: the call that the thread waits in.
pub fn get(registers: &Registers, waits: Option<u32>, number: usize) -> Option<Vec<u8>> {
    let register = ALL.get(number)?;
    let mut value = match register.place {
        Place::Word(word) => registers.words[word].to_le_bytes().to_vec(),
        Place::Fixed(value) => value.to_le_bytes().to_vec(),
        Place::Waits => waits.map_or(-1, i64::from).to_le_bytes().to_vec(),
        Place::Tags => u32::from(tags(&registers.extended)).to_le_bytes().to_vec(),
        Place::Extended { at, component, len } => {
            let mut value = extended(&registers.extended, at, component, len);
            // An opcode has eleven bits.
            if register.name == "fop" {
                value[1] &= 7;
            }
            value
        }
    };
    value.resize(register.len, 0);
    Some(value)
}

/// All of them.
pub fn all(registers: &Registers, waits: Option<u32>) -> Vec<u8> {
    let each = (0..ALL.len()).map(|number| get(registers, waits, number).expect("it is there"));
    each.flatten().collect()
}

/// Changes one. `None`: there is no such register, or the value hasn't its size.
pub fn set(registers: &mut Registers, number: usize, value: &[u8]) -> Option<()> {
    let register = ALL.get(number)?;
    if value.len() != register.len {
        return None;
    }
    match register.place {
        Place::Word(word) => {
            let mut bytes = [0; 8];
            bytes[..value.len()].copy_from_slice(value);
            registers.words[word] = u64::from_le_bytes(bytes);
        }
        // gdb writes them along with others, and a program couldn't.
        Place::Fixed(_) | Place::Waits => {}
        Place::Tags => {
            let full = u16::from_le_bytes([value[0], value[1]]);
            let short = (0..8).fold(0u8, |short, n| {
                short | u8::from(full >> (2 * n) & 3 != 3) << n
            });
            put_extended(&mut registers.extended, TAGS, X87, &[short])?;
        }
        Place::Extended { at, component, len } => {
            put_extended(&mut registers.extended, at, component, &value[..len])?;
        }
    }
    Some(())
}

/// Changes all.
pub fn set_all(registers: &mut Registers, mut values: &[u8]) -> Option<()> {
    for (number, register) in ALL.iter().enumerate() {
        let (value, rest) = values.split_at_checked(register.len)?;
        set(registers, number, value)?;
        values = rest;
    }
    values.is_empty().then_some(())
}

/// Bytes of the XSAVE area; of a component that isn't in use, what it has at the start of a program.
fn extended(area: &[u8], at: usize, component: u8, len: usize) -> Vec<u8> {
    let in_use = area
        .get(COMPONENTS)
        .is_some_and(|c| c >> component & 1 != 0);
    // MXCSR is kept even if no SSE register is.
    if in_use || at == 24 {
        let bytes = area.get(at..at + len);
        return bytes.map_or_else(|| vec![0; len], <[u8]>::to_vec);
    }
    let mut initial = vec![0; len];
    if at == 0 {
        initial.copy_from_slice(&0x37fu16.to_le_bytes());
    }
    initial
}

fn put_extended(area: &mut Vec<u8>, at: usize, component: u8, bytes: &[u8]) -> Option<()> {
    area.resize(AREA, 0);
    if extended(area, at, component, bytes.len()) == bytes {
        return Some(());
    }
    // A component that comes into use begins with its initial values.
    if area[COMPONENTS] >> component & 1 == 0 {
        match component {
            X87 => {
                area[..24].fill(0);
                area[ST0..XMM0].fill(0);
                area[..2].copy_from_slice(&0x37fu16.to_le_bytes());
            }
            SSE => area[XMM0..XMM0 + 256].fill(0),
            _ => area[YMMH0..AREA].fill(0),
        }
        area[COMPONENTS] |= 1 << component;
    }
    area[at..at + bytes.len()].copy_from_slice(bytes);
    Some(())
}

/// The full tag word: for each physical register 0 valid, 1 zero, 2 special, 3 empty.
fn tags(area: &[u8]) -> u16 {
    let short = extended(area, TAGS, X87, 1)[0];
    let status = extended(area, 2, X87, 2);
    let top = usize::from(status[1] >> 3 & 7);
    (0..8).fold(0, |tags, physical| {
        let tag = if short >> physical & 1 == 0 {
            3
        } else {
            // The area has them from the stack's top on.
            let value = extended(area, ST0 + 16 * ((physical + 8 - top) & 7), X87, 10);
            kind_of(&value)
        };
        tags | tag << (2 * physical)
    })
}

fn kind_of(value: &[u8]) -> u16 {
    let exponent = u16::from_le_bytes([value[8], value[9]]) & 0x7fff;
    let whole = value[7] >> 7 == 1;
    let zero = value[..8].iter().all(|&byte| byte == 0);
    match (exponent, whole) {
        (0, false) if zero => 1,
        (0, _) | (0x7fff, _) | (_, false) => 2,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> Registers {
        let mut extended = vec![0; AREA];
        extended[COMPONENTS] = 7;
        Registers {
            words: std::array::from_fn(|n| 0x1000 + n as u64),
            extended,
        }
    }

    fn numbered(name: &str) -> usize {
        ALL.iter().position(|r| r.name == name).unwrap()
    }

    fn value(registers: &Registers, name: &str) -> u64 {
        let bytes = get(registers, Some(35), numbered(name)).unwrap();
        let mut word = [0; 8];
        word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        u64::from_le_bytes(word)
    }

    #[test]
    fn gdb_has_another_order() {
        let registers = registers();
        for (name, word) in [("rax", 0), ("rbx", 3), ("rcx", 1), ("rsp", 4), ("rip", 16)] {
            assert_eq!(value(&registers, name), 0x1000 + word, "{name}");
        }
        assert_eq!(value(&registers, "cs"), 0x33);
        assert_eq!(value(&registers, "orig_rax"), 35);
        assert_eq!(value(&registers, "gs_base"), 0x1013);
        assert_eq!(numbered("rip"), 16);
        // Conditions use these numbers too.
        assert_eq!([numbered("fs_base"), numbered("gs_base")], [58, 59]);
        assert_eq!(EXPEDITED.map(|n| ALL[n].name), ["rbp", "rsp", "rip"]);
    }

    #[test]
    fn all_and_back() {
        let mut one = registers();
        one.extended[0..2].copy_from_slice(&0x27fu16.to_le_bytes());
        one.extended[XMM0] = 9;
        one.extended[YMMH0 + 255] = 8;
        let bytes = all(&one, None);
        assert_eq!(
            bytes.len(),
            16 * 8 + 8 + 7 * 4 + 80 + 32 + 256 + 4 + 24 + 256
        );
        let mut two = registers();
        set_all(&mut two, &bytes).unwrap();
        assert_eq!(all(&two, None), bytes);
        assert_eq!(one, two);
        assert_eq!(set_all(&mut two, &bytes[1..]), None);
        assert_eq!(set(&mut two, 0, &[1]), None);
        assert_eq!(set(&mut two, 999, &[1]), None);
    }

    #[test]
    fn components_that_are_not_in_use() {
        let mut registers = registers();
        registers.extended.fill(0xee);
        registers.extended[COMPONENTS] = 0;
        assert_eq!(value(&registers, "fctrl"), 0x37f);
        assert_eq!(value(&registers, "ftag"), 0xffff);
        assert_eq!(value(&registers, "xmm3"), 0);
        set(&mut registers, numbered("xmm3"), &[1; 16]).unwrap();
        assert_eq!(registers.extended[COMPONENTS], 2);
        assert_eq!(value(&registers, "xmm2"), 0);
        assert_eq!(value(&registers, "xmm3"), 0x0101_0101_0101_0101);
        // Writing what is there changes nothing.
        set(&mut registers, numbered("fctrl"), &[0x7f, 3, 0, 0]).unwrap();
        assert_eq!(registers.extended[COMPONENTS], 2);
    }

    #[test]
    fn tags_are_made_full() {
        let mut registers = registers();
        // 1.0 was pushed: top is 7.
        registers.extended[3] = 7 << 3;
        registers.extended[TAGS] = 0x80;
        registers.extended[ST0..ST0 + 10].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]);
        assert_eq!(value(&registers, "ftag"), 0x3fff);
        registers.extended[ST0 + 7..ST0 + 10].fill(0);
        assert_eq!(value(&registers, "ftag"), 0x7fff);
        registers.extended[ST0 + 8..ST0 + 10].copy_from_slice(&[0xff, 0x7f]);
        assert_eq!(value(&registers, "ftag"), 0xbfff);
        set(&mut registers, numbered("ftag"), &[0xff, 0xff, 0, 0]).unwrap();
        assert_eq!(registers.extended[TAGS], 0);
    }

    #[test]
    fn the_description_names_all() {
        let xml = description();
        for register in &ALL {
            assert!(xml.contains(&format!("name=\"{}\"", register.name)));
        }
        assert_eq!(xml.matches("<feature ").count(), 5);
    }
}
