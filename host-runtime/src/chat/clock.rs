//! `strftime` for templates that tell the model the date.
//!
//! In UTC: the standard library does not know the local zone, and models are told little more than the date.

use std::fmt::Write;

const DAY: i64 = 86_400;
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Names, and the days of a common year before each month.
const MONTHS: [(&str, i64); 12] = [
    ("January", 0),
    ("February", 31),
    ("March", 59),
    ("April", 90),
    ("May", 120),
    ("June", 151),
    ("July", 181),
    ("August", 212),
    ("September", 243),
    ("October", 273),
    ("November", 304),
    ("December", 334),
];

/// A point in time, taken apart.
struct Date {
    year: i64,
    /// 0 is January.
    month: usize,
    day: i64,
    day_of_year: i64,
    /// 0 is Sunday.
    weekday: usize,
    second: i64,
}

impl Date {
    /// From seconds since 1970. Years are counted from March in eras of 400, so the leap day comes last.
    fn new(unix: i64) -> Self {
        let days = unix.div_euclid(DAY);
        let shifted = days + 719_468;
        let (era, rest) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (rest - rest / 1460 + rest / 36_524 - rest / 146_096) / 365;
        let from_march = rest - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * from_march + 2) / 153;
        let day = from_march - (153 * march_month + 2) / 5 + 1;
        let month = ((march_month + 2) % 12) as usize;
        let year = era * 400 + year_of_era + i64::from(month < 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        Self {
            year,
            month,
            day,
            day_of_year: MONTHS[month].1 + day + i64::from(leap && month > 1),
            // 1 January 1970 was a Thursday.
            weekday: (days + 4).rem_euclid(7) as usize,
            second: unix.rem_euclid(DAY),
        }
    }
}

/// Formats seconds since 1970; the error is the first directive that is not known.
pub(super) fn strftime(format: &str, unix: i64) -> Result<String, String> {
    let date = Date::new(unix);
    let (hour, minute, second) = (date.second / 3600, date.second / 60 % 60, date.second % 60);
    let hour12 = (hour + 11) % 12 + 1;
    let (month, weekday) = (MONTHS[date.month].0, WEEKDAYS[date.weekday]);
    let mut out = String::with_capacity(2 * format.len());
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        // glibc's %-d: without padding.
        let bare = directive == Some('-');
        if bare {
            directive = chars.next();
        }
        let number = |out: &mut String, value: i64, width: usize| {
            let width = if bare { 0 } else { width };
            // Writing to a string cannot fail.
            let _ = write!(out, "{value:0width$}");
        };
        match directive {
            Some('Y') => number(&mut out, date.year, 4),
            Some('y') => number(&mut out, date.year.rem_euclid(100), 2),
            Some('m') => number(&mut out, date.month as i64 + 1, 2),
            Some('d') => number(&mut out, date.day, 2),
            Some('e') => out.push_str(&format!("{:2}", date.day)),
            Some('j') => number(&mut out, date.day_of_year, 3),
            Some('H') => number(&mut out, hour, 2),
            Some('I') => number(&mut out, hour12, 2),
            Some('M') => number(&mut out, minute, 2),
            Some('S') => number(&mut out, second, 2),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('B') => out.push_str(month),
            Some('b' | 'h') => out.push_str(&month[..3]),
            Some('A') => out.push_str(weekday),
            Some('a') => out.push_str(&weekday[..3]),
            Some('F') => out.push_str(&strftime("%Y-%m-%d", unix)?),
            Some('T') => out.push_str(&strftime("%H:%M:%S", unix)?),
            Some('Z') => out.push_str("UTC"),
            Some('z') => out.push_str("+0000"),
            Some('%') => out.push('%'),
            Some(unknown) => return Err(format!("%{unknown}")),
            None => return Err("%".to_owned()),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        let all = "%A %a %-d %d %e %B %b %m %y %Y %j %H:%M:%S %I %p %%";
        // Checked against GNU date.
        let cases = [
            (0, "Thursday Thu 1 01  1 January Jan 01 70 1970 001 00:00:00 12 AM %"),
            (951_782_400, "Tuesday Tue 29 29 29 February Feb 02 00 2000 060 00:00:00 12 AM %"),
            (1_735_689_599, "Tuesday Tue 31 31 31 December Dec 12 24 2024 366 23:59:59 11 PM %"),
            (1_772_323_200, "Sunday Sun 1 01  1 March Mar 03 26 2026 060 00:00:00 12 AM %"),
            (-1, "Wednesday Wed 31 31 31 December Dec 12 69 1969 365 23:59:59 11 PM %"),
        ];
        for (unix, expected) in cases {
            assert_eq!(strftime(all, unix).as_deref(), Ok(expected));
        }
        assert_eq!(strftime("%F %T", 951_782_461).as_deref(), Ok("2000-02-29 00:01:01"));
    }

    #[test]
    fn unknown_directives_are_named() {
        assert_eq!(strftime("%Y %Q", 0), Err("%Q".to_owned()));
        assert_eq!(strftime("%", 0), Err("%".to_owned()));
    }
}
