use super::*;

#[test]
fn each_version_has_its_instructions() {
    let count = |version| FORMS.iter().filter(|form| form.since == version).count();
    assert_eq!([68, 73, 79, 81].map(count), [66, 15, 21, 30]);
    assert!(FORMS.is_sorted_by_key(|form| form.since));
    assert_eq!(FORMS.iter().filter(|form| form.is_ieee_arithmetic()).count(), 17);
    assert!(UNKNOWN.iter().all(|syntax| FORMS.iter().any(|form| form.syntax == *syntax)));
}

/// A value that no version computes would be compared with nothing.
#[test]
fn what_is_known_has_a_value() {
    let word = Word { bits: 0x3c00_4400, beside: DEFAULT };
    let input = Input { u: [word; 2], v: word, x: [0; 2], q: 0, t: 0x3c00_4400 };
    for form in FORMS.iter().filter(|form| form.is_known()) {
        let output = form.compute(Version(81), &input);
        let set_beside = form.shape().operation == "vsetqfext";
        assert!(set_beside || output.known == [u32::MAX; 2], "{}: {output:x?}", form.syntax);
    }
}

#[test]
fn parts_are_read_from_the_text() {
    let shape = Shape::of("Vxx.sf+=vmpy(Vu.bf,Vv.bf)");
    assert_eq!((shape.register, shape.to, shape.join, shape.operation), ("Vxx", Type::Sf, Some('+'), "vmpy"));
    let shape = Shape::of("Vd.h=Vu.hf:rnd");
    assert_eq!((shape.operation, shape.u.holds, shape.v, shape.rounds), ("", Type::Hf, None, true));
    let shape = Shape::of("Qx&=vcmp.gt(Vu.sf,Vv.sf)");
    assert!(shape.writes_predicate() && shape.join == Some('&'));
    assert_eq!(shape.operation, "vcmp.gt");
}
