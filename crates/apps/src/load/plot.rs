//! Plots as SVG: points over their index, and lines.

use std::fmt::Write;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 450.0;
const LEFT: f64 = 80.0;
const BOTTOM: f64 = 50.0;
const TOP: f64 = 30.0;
const RIGHT: f64 = 20.0;

/// A round number that is at least `value`.
fn round_up(value: f64) -> f64 {
    let scale = 10f64.powf(value.max(1.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * scale >= value);
    step.unwrap_or(10.0) * scale
}

/// The layout, and the axes.
struct Frame {
    x_max: f64,
    y_max: f64,
}

impl Frame {
    fn x(&self, at: f64) -> f64 {
        LEFT + at / self.x_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.y_max * (HEIGHT - BOTTOM - TOP)
    }

    /// Returns the picture up to its contents.
    fn begin(&self, title: &str, x_label: &str, y_label: &str) -> String {
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
             <text x=\"{}\" y=\"18\" text-anchor=\"middle\" font-size=\"14\">{title}</text>\n",
            WIDTH / 2.0
        );
        for tick in 0..=4 {
            let share = f64::from(tick) / 4.0;
            let (at, value) = (share * self.x_max, share * self.y_max);
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{2:.1}\" y2=\"{2:.1}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{}\" y=\"{3:.1}\" text-anchor=\"end\">{value}</text>\n\
                 <text x=\"{4:.1}\" y=\"{5}\" text-anchor=\"middle\">{at}</text>\n",
                WIDTH - RIGHT,
                LEFT - 6.0,
                self.y(value),
                self.y(value) + 4.0,
                self.x(at),
                HEIGHT - BOTTOM + 18.0,
            );
        }
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{x_label}</text>\n\
             <text x=\"16\" y=\"{2}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {2})\">\
             {y_label}</text>\n",
            WIDTH / 2.0,
            HEIGHT - 10.0,
            HEIGHT / 2.0
        );
        out
    }
}

/// Points that a line joins.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Draws lines with their names.
pub fn lines(title: &str, x_label: &str, y_label: &str, all: &[Line]) -> String {
    const COLOURS: [&str; 6] = [
        "#0b57a4", "#b3261e", "#1a7f37", "#8250df", "#9a6700", "#57606a",
    ];
    let points = || all.iter().flat_map(|line| &line.points);
    let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(1.0, f64::max);
    let frame = Frame {
        x_max: round_up(largest(&mut points().map(|point| point.0))),
        y_max: round_up(largest(&mut points().map(|point| point.1))),
    };
    let mut out = frame.begin(title, x_label, y_label);
    for ((line, colour), at) in all.iter().zip(COLOURS.iter().cycle()).zip(0u32..) {
        let place = |(x, y): &(f64, f64)| format!("{:.1},{:.1}", frame.x(*x), frame.y(*y));
        let places: Vec<String> = line.points.iter().map(place).collect();
        let _ = write!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"{colour}\">{}</text>\n",
            places.join(" "),
            LEFT + 12.0,
            TOP + 14.0 + 16.0 * f64::from(at),
            line.name
        );
        for (x, y) in &line.points {
            let (x, y) = (frame.x(*x), frame.y(*y));
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Draws a point for each value over its index, with axes.
pub fn scatter(title: &str, x_label: &str, y_label: &str, values: &[u64]) -> String {
    let largest = values.iter().copied().max().unwrap_or(1).max(1) as f64;
    let frame = Frame {
        x_max: round_up(values.len() as f64),
        y_max: round_up(largest),
    };
    let mut out = frame.begin(title, x_label, y_label);
    out.push_str("<g fill=\"#0b57a4\" fill-opacity=\".6\">\n");
    for (at, value) in values.iter().enumerate() {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.6\"/>",
            frame.x(at as f64),
            frame.y(*value as f64)
        );
    }
    out.push_str("</g>\n</svg>\n");
    out
}
