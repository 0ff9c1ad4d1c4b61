use super::*;

const PAYLOAD: &[u8] = b"\x80payload";
const MAP: u32 = 7;

struct Around {
    selected: Option<Vec<u8>>,
}

impl Surroundings for Around {
    fn key_len(&self, map: u32) -> Option<usize> {
        (map == MAP).then_some(4)
    }

    fn look_up(&mut self, _: u32, key: &[u8]) -> Option<Vec<u8>> {
        (key[0] < 4).then(|| [key[0] + 10, 0, 0, 0].to_vec())
    }

    fn select(&mut self, _: u32, key: &[u8]) -> i64 {
        self.selected = Some(key.to_vec());
        0
    }

    fn random(&mut self) -> u32 {
        77
    }

    fn now_ns(&self) -> u64 {
        1
    }

    fn processor(&self) -> u32 {
        2
    }
}

fn one(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> [u8; 8] {
    let ([a, b], [c, d, e, f]) = (off.to_ne_bytes(), imm.to_ne_bytes());
    let registers = match cfg!(target_endian = "little") {
        true => dst | src << 4,
        false => src | dst << 4,
    };
    [code, registers, a, b, c, d, e, f]
}

const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

fn program(code: &[[u8; 8]]) -> Option<Extended> {
    Extended::parse(&Extended::bytes(code.as_flattened(), |_| None))
}

fn result(code: &[[u8; 8]]) -> (Option<u64>, Option<Vec<u8>>) {
    let seen = Seen {
        network: &[0x45; 20],
        transport: [1, 2, 3, 4, 0, 16, 0, 0],
        payload: PAYLOAD,
        ether_type: 0x800,
        protocol: 17,
        is_any: true,
        hash: 5,
    };
    let mut around = Around { selected: None };
    let program = program(code).expect("supported");
    let result = machine::run(&program.code, &seen, &mut around);
    (result, around.selected)
}

fn value(code: &[[u8; 8]]) -> Option<u64> {
    result(&[code, &[EXIT]].concat()).0
}

#[test]
fn arithmetic_is_that_of_its_width() {
    let mov = |register, imm| one(0xb7, register, 0, 0, imm);
    for (operation, want) in [
        (one(0x07, 0, 0, 0, 5), (-2i64).cast_unsigned()),
        (one(0x04, 0, 0, 0, 5), 0xffff_fffe),
        (one(0x37, 0, 0, 0, 0), 0),
        (one(0x97, 0, 0, 0, 0), (-7i64).cast_unsigned()),
        (one(0x37, 0, 0, 1, 2), (-3i64).cast_unsigned()),
        (one(0x97, 0, 0, 1, 2), (-1i64).cast_unsigned()),
        (one(0x77, 0, 0, 0, 60), 15),
        (one(0xc7, 0, 0, 0, 1), (-4i64).cast_unsigned()),
        (one(0xc4, 0, 0, 0, 1), 0xffff_fffc),
        (one(0x87, 0, 0, 0, 0), 7),
        (one(0xbc, 0, 0, 0, 0), 0xffff_fff9),
        (one(0xbf, 0, 0, 8, 0), (-7i64).cast_unsigned()),
        (one(0xdc, 0, 0, 0, 16), u16::from_be(0xfff9).into()),
        (one(0xd7, 0, 0, 0, 32), 0xf9ff_ffff),
    ] {
        assert_eq!(value(&[mov(0, -7), operation]), Some(want), "{operation:?}");
    }
}

#[test]
fn a_program_reads_the_datagram_and_its_context() {
    let load = |code, off| value(&[one(code, 0, 1, off, 0)]);
    assert_eq!(load(0x61, 16), Some(8 + PAYLOAD.len() as u64));
    assert_eq!(load(0x61, 20), Some(0x800u16.to_be().into()));
    assert_eq!(load(0x71, 24), Some(17));
    assert_eq!(load(0x61, 28), Some(1));
    assert_eq!(load(0x61, 32), Some(5));
    assert_eq!(load(0x61, 36), None, "beyond the context");
    let first = one(0x79, 2, 1, 0, 0);
    assert_eq!(value(&[first, one(0x71, 0, 2, 8, 0)]), Some(0x80));
    let signed = value(&[first, one(0x91, 0, 2, 8, 0)]);
    assert_eq!(signed, Some((-128i64).cast_unsigned()));
    let across = value(&[first, one(0x69, 0, 2, 7, 0)]);
    assert_eq!(across, Some(u16::from_ne_bytes([0, 0x80]).into()));
    for off in [-1, 8 + PAYLOAD.len() as i16] {
        assert_eq!(value(&[first, one(0x71, 0, 2, off, 0)]), None, "{off}");
    }
    assert_eq!(
        value(&[first, one(0x7b, 2, 1, 0, 0)]),
        None,
        "it is not written"
    );
    assert_eq!(value(&[one(0x79, 0, 3, 0, 0)]), None, "the null pointer");
}

#[test]
fn a_key_on_the_stack_selects_a_socket_and_finds_a_value() {
    let key = [
        one(0x62, 10, 0, -4, 3),
        one(0xbf, 3, 10, 0, 0),
        one(0x07, 3, 0, 0, -4),
    ];
    let map = |register| [one(0x18, register, 1, 0, 7), [0; 8]];
    let select = [one(0xb7, 4, 0, 0, 0), one(0x85, 0, 0, 0, 82), EXIT];
    let (result, selected) = result(&[&key[..], &map(2), &select].concat());
    assert_eq!(
        (result, selected),
        (Some(0), Some(3u32.to_ne_bytes().to_vec()))
    );
    let look_up = [
        one(0xbf, 2, 3, 0, 0),
        one(0x85, 0, 0, 0, 1),
        one(0x71, 0, 0, 0, 0),
    ];
    assert_eq!(value(&[&key[..], &map(1), &look_up].concat()), Some(13));
}

#[test]
fn bytes_are_loaded_from_either_header() {
    let load = |helper: i32, at: i32, from: i32| {
        let place = [one(0xbf, 3, 10, 0, 0), one(0x07, 3, 0, 0, -8)];
        let arguments = [
            one(0xb7, 2, 0, 0, at),
            one(0xb7, 4, 0, 0, 1),
            one(0xb7, 5, 0, 0, from),
        ];
        let call = one(0x85, 0, 0, 0, helper);
        let begin = [one(0x7a, 10, 0, -8, 0)];
        let code = [&begin[..], &place, &arguments, &[call]].concat();
        let byte = value(&[&code[..], &[one(0x71, 0, 10, -8, 0)]].concat());
        (value(&code), byte)
    };
    let fault = Some((-14i64).cast_unsigned());
    assert_eq!(load(26, 8, 0), (Some(0), Some(0x80)));
    assert_eq!(load(26, 16, 0), (fault, Some(0)));
    assert_eq!(load(68, 0, 1), (Some(0), Some(0x45)));
    assert_eq!(load(68, 20, 1), (Some(0), Some(1)));
    assert_eq!(load(68, 36, 1), (fault, Some(0)));
    assert_eq!(load(68, 0, 0), (fault, Some(0)));
}

#[test]
fn a_function_leaves_the_registers_of_its_caller() {
    let code = [
        one(0xb7, 6, 0, 0, 40),
        one(0x85, 0, 1, 0, 2),
        one(0x0f, 0, 6, 0, 0),
        EXIT,
        one(0xb7, 6, 0, 0, 9),
        one(0xb7, 0, 0, 0, 2),
        EXIT,
    ];
    assert_eq!(result(&code).0, Some(42));
    assert_eq!(
        result(&[one(0x85, 0, 1, 0, -1)]).0,
        None,
        "it calls itself for ever"
    );
}

#[test]
fn an_endless_program_is_ended() {
    assert_eq!(value(&[one(0x05, 0, 0, -1, 0)]), None);
    assert_eq!(
        value(&[one(0x05, 0, 0, -9, 0)]),
        None,
        "before the first instruction"
    );
    assert_eq!(value(&[one(0x05, 0, 0, 9, 0)]), None, "beyond the last one");
}

#[test]
fn a_look_up_counts_as_many_instructions() {
    let key = [one(0x62, 10, 0, -4, 3), one(0xb7, 6, 0, 0, 0)];
    let look_up = [
        one(0x18, 1, 1, 0, 7),
        [0; 8],
        one(0xbf, 2, 10, 0, 0),
        one(0x07, 2, 0, 0, -4),
        one(0x85, 0, 0, 0, 1),
        one(0x07, 6, 0, 0, 1),
    ];
    let repeated = |times| {
        let back = one(0xa5, 6, 0, -7, times);
        value(&[&key[..], &look_up, &[back, one(0xbf, 0, 6, 0, 0)]].concat())
    };
    assert_eq!(repeated(90), Some(90));
    assert_eq!(repeated(100), None);
}

#[test]
fn only_one_passes_a_datagram() {
    let seen = Seen {
        network: &[0x45; 20],
        transport: [0; 8],
        payload: PAYLOAD,
        ether_type: 0x800,
        protocol: 17,
        is_any: true,
        hash: 5,
    };
    for (result, verdict) in [
        (0, Verdict::Drop),
        (1, Verdict::Pass),
        (2, Verdict::Drop),
        (-2, Verdict::Drop),
    ] {
        let program = program(&[one(0xb7, 0, 0, 0, result), EXIT]).unwrap();
        let mut around = Around { selected: None };
        assert_eq!(program.run(&seen, &mut around), Some(verdict), "{result}");
    }
}

#[test]
fn programs_of_too_many_maps_are_refused() {
    let program = |count| {
        let maps = (1..=count).flat_map(|id| [one(0x18, 1, 1, 0, id), [0; 8]]);
        let code: Vec<[u8; 8]> = maps.chain([EXIT]).collect();
        let id_of = |reference| match reference {
            MapReference::Descriptor(number) => Some(number as u32),
            MapReference::Index(_) => None,
        };
        Extended::parse(&Extended::bytes(code.as_flattened(), id_of))
    };
    assert!(program(16).is_some());
    assert_eq!(program(17), None);
}

#[test]
fn programs_with_unsupported_instructions_are_refused() {
    for code in [
        one(0x85, 0, 0, 0, 6),
        one(0x85, 0, 2, 0, 82),
        one(0xdb, 10, 1, -8, 0),
        one(0x18, 1, 2, 0, 7),
        one(0x20, 0, 0, 0, 0),
    ] {
        assert_eq!(program(&[code, [0; 8], EXIT]), None, "{code:?}");
    }
    assert_eq!(
        program(&[one(0x18, 1, 0, 0, 7)]),
        None,
        "half of a wide load"
    );
    assert_eq!(Extended::parse(EXIT.as_slice()), None, "no mark");
    assert!(Extended::is_marked(&Extended::bytes(&EXIT, |_| None)));
}

#[test]
fn references_to_maps_become_their_ids() {
    let code = [
        one(0x18, 1, 1, 0, 33),
        [0; 8],
        one(0x18, 2, 5, 0, 2),
        [0; 8],
        one(0x18, 3, 0, 0, 33),
        one(0, 0, 0, 0, 33),
        EXIT,
    ];
    let bytes = Extended::bytes(code.as_flattened(), |reference| match reference {
        MapReference::Descriptor(33) => Some(700),
        MapReference::Index(2) => Some(600),
        _ => None,
    });
    let program = Extended::parse(&bytes).unwrap();
    assert_eq!(program.maps(), [600, 700]);
    assert_eq!(program.code[4].imm, 33, "a number");
    let unknown = Extended::bytes(code.as_flattened(), |_| None);
    assert_eq!(
        Extended::parse(&unknown),
        None,
        "an index that nothing resolves"
    );
}

#[test]
fn maps_of_sockets_need_values_of_eight_bytes() {
    for (kind, value_len, want) in [
        (2, 4, true),
        (1, 4097, false),
        (20, 8, true),
        (18, 4, false),
        (5, 8, false),
    ] {
        assert_eq!(
            is_supported_map(kind, value_len),
            want,
            "{kind} {value_len}"
        );
    }
}
