package report

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"image"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
)

// ink is a colour by what it is for: the page gives every ink a colour for light and one
// for dark surroundings, so a figure is drawn once for both. As a color.Color it is that
// of light surroundings.
type ink int

// The inks; inkSeries and those after it are for series.
const (
	inkText ink = iota
	inkGrid
	inkHeat
	inkSeries
)

// numHues is how many series can be told apart by colour.
const numHues = 7

// hue is the ink of a series.
func hue(i int) ink { return inkSeries + ink(i%numHues) }

// RGBA implements color.Color.
func (i ink) RGBA() (r, g, b, a uint32) {
	return [...]color.RGBA{
		{0x1c, 0x1c, 0x1e, 0xff}, {0xe2, 0xe2, 0xe2, 0xff}, {0x00, 0x72, 0xb2, 0xff},
		// Okabe and Ito's colours, which differ for every kind of colour vision, without
		// the yellow that white paper swallows.
		{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
		{0x56, 0xb4, 0xe9, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x44, 0x44, 0x44, 0xff},
	}[i].RGBA()
}

// class is how the style sheet of the page calls the ink.
func (i ink) class() string {
	switch i {
	case inkText:
		return "t"
	case inkGrid:
		return "g"
	case inkHeat:
		return "h"
	}
	return strconv.Itoa(int(i - inkSeries))
}

// shade is an ink laid on thinly: 0 is nothing, 1 all of it.
type shade struct {
	ink
	opacity float64
}

// svgCanvas is a vg.Canvas that writes SVG with classes instead of colours, and texts of a
// fixed length, so that no font of a reader makes them overlap. Its unit is the pixel.
type svgCanvas struct {
	w, h  float64
	buf   bytes.Buffer
	state svgState
	stack []svgState
	err   error // of what it cannot draw
}

// svgState is what Push keeps.
type svgState struct {
	color color.Color
	width float64
	dash  []vg.Length
	// m maps a point to a*x+c*y+e, b*x+d*y+f, with y upwards.
	m [6]float64
}

func newCanvas(w, h float64) *svgCanvas {
	c := &svgCanvas{w: w, h: h, state: svgState{m: [6]float64{1, 0, 0, 1, 0, 0}}}
	vg.Initialize(c)
	return c
}

// Size implements vg.CanvasSizer.
func (c *svgCanvas) Size() (w, h vg.Length) { return vg.Length(c.w), vg.Length(c.h) }

// svg is the whole element, with this class and description.
func (c *svgCanvas) svg(class, label string) string {
	return fmt.Sprintf(`<svg class="%s" role="img" aria-label="%s" width="%g" height="%g" viewBox="0 0 %g %g">`+"\n%s</svg>",
		class, html.EscapeString(label), c.w, c.h, c.w, c.h, c.buf.String())
}

// SetLineWidth implements vg.Canvas, as do all that follow.
func (c *svgCanvas) SetLineWidth(w vg.Length) { c.state.width = w.Points() }

// SetLineDash sets the pattern of dashes.
func (c *svgCanvas) SetLineDash(d []vg.Length, _ vg.Length) { c.state.dash = d }

// SetColor sets the colour of what is drawn from now on.
func (c *svgCanvas) SetColor(col color.Color) { c.state.color = col }

// Rotate turns the coordinates by an angle in radians.
func (c *svgCanvas) Rotate(rad float64) {
	sin, cos := math.Sincos(rad)
	c.apply(cos, sin, -sin, cos, 0, 0)
}

// Translate moves the origin.
func (c *svgCanvas) Translate(p vg.Point) { c.apply(1, 0, 0, 1, p.X.Points(), p.Y.Points()) }

// Scale stretches the coordinates.
func (c *svgCanvas) Scale(x, y float64) { c.apply(x, 0, 0, y, 0, 0) }

// apply puts a map before that of the state.
func (c *svgCanvas) apply(a, b, cc, d, e, f float64) {
	m := c.state.m
	c.state.m = [6]float64{
		m[0]*a + m[2]*b, m[1]*a + m[3]*b,
		m[0]*cc + m[2]*d, m[1]*cc + m[3]*d,
		m[0]*e + m[2]*f + m[4], m[1]*e + m[3]*f + m[5],
	}
}

// Push keeps the state for Pop.
func (c *svgCanvas) Push() { c.stack = append(c.stack, c.state) }

// Pop returns to the state of the last Push.
func (c *svgCanvas) Pop() {
	c.state, c.stack = c.stack[len(c.stack)-1], c.stack[:len(c.stack)-1]
}

// at is where a point lies in the picture, with y downwards.
func (c *svgCanvas) at(p vg.Point) (x, y float64) {
	m := c.state.m
	px, py := p.X.Points(), p.Y.Points()
	return m[0]*px + m[2]*py + m[4], c.h - (m[1]*px + m[3]*py + m[5])
}

// coord writes a coordinate to a hundredth of a pixel.
func coord(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100+0, 'f', -1, 64)
}

func (c *svgCanvas) point(p vg.Point) string {
	x, y := c.at(p)
	return coord(x) + " " + coord(y)
}

func (c *svgCanvas) path(p vg.Path) string {
	var b bytes.Buffer
	for _, k := range p {
		switch k.Type {
		case vg.MoveComp:
			fmt.Fprintf(&b, "M%s", c.point(k.Pos))
		case vg.LineComp:
			fmt.Fprintf(&b, "L%s", c.point(k.Pos))
		case vg.CloseComp:
			b.WriteByte('Z')
		case vg.ArcComp:
			c.arc(&b, &k)
		case vg.CurveComp:
			b.WriteByte("?QC"[min(len(k.Control), 2)])
			for _, p := range append(k.Control[:len(k.Control):len(k.Control)], k.Pos) {
				fmt.Fprintf(&b, "%s ", c.point(p))
			}
		}
	}
	return b.String()
}

// arc writes a part of a circle in pieces below half of it, since a longer one is not
// determined by its ends.
func (c *svgCanvas) arc(b *bytes.Buffer, k *vg.PathComp) {
	r := k.Radius.Points() * math.Hypot(c.state.m[0], c.state.m[1])
	sweep := 0 // counter-clockwise, since y points down in SVG
	if k.Angle < 0 {
		sweep = 1
	}
	pieces := int(math.Abs(k.Angle)/(math.Pi*0.9)) + 1
	place := func(i int) vg.Point {
		sin, cos := math.Sincos(k.Start + k.Angle*float64(i)/float64(pieces))
		return vg.Point{X: k.Pos.X + k.Radius*vg.Length(cos), Y: k.Pos.Y + k.Radius*vg.Length(sin)}
	}
	command := "L"
	if b.Len() == 0 {
		command = "M"
	}
	fmt.Fprintf(b, "%s%s", command, c.point(place(0)))
	for i := range pieces {
		fmt.Fprintf(b, "A%s %s 0 0 %d %s", coord(r), coord(r), sweep, c.point(place(i+1)))
	}
}

// inkOf is the ink that a colour of the state stands for, and how thick it lies.
func (c *svgCanvas) inkOf() (ink, float64) {
	switch v := c.state.color.(type) {
	case ink:
		return v, 1
	case shade:
		return v.ink, v.opacity
	}
	return inkText, 1
}

// Stroke draws the outline of a path.
func (c *svgCanvas) Stroke(p vg.Path) {
	if !(c.state.width > 0) || len(p) == 0 {
		return
	}
	i, _ := c.inkOf()
	fmt.Fprintf(&c.buf, `<path class="s%s" d="%s" stroke-width="%s"`, i.class(), c.path(p), coord(c.state.width))
	for n, d := range c.state.dash {
		if n == 0 {
			c.buf.WriteString(` stroke-dasharray="`)
		} else {
			c.buf.WriteByte(' ')
		}
		c.buf.WriteString(coord(d.Points()))
		if n == len(c.state.dash)-1 {
			c.buf.WriteByte('"')
		}
	}
	c.buf.WriteString("/>\n")
}

// Fill fills a path.
func (c *svgCanvas) Fill(p vg.Path) {
	i, opacity := c.inkOf()
	fmt.Fprintf(&c.buf, `<path class="f%s" d="%s"`, i.class(), c.path(p))
	if opacity < 1 {
		fmt.Fprintf(&c.buf, ` fill-opacity="%s"`, strconv.FormatFloat(opacity, 'f', 3, 64))
	}
	c.buf.WriteString("/>\n")
}

// FillString writes a text that begins at a point. Its length is fixed to that in the font
// of the plot.
func (c *svgCanvas) FillString(f font.Face, p vg.Point, text string) {
	if text == "" || f.Font.Size == 0 {
		return
	}
	i, _ := c.inkOf()
	x, y := c.at(p)
	fmt.Fprintf(&c.buf, `<text class="f%s" x="%s" y="%s" font-size="%s" textLength="%s" lengthAdjust="spacingAndGlyphs"`,
		i.class(), coord(x), coord(y), coord(f.Font.Size.Points()), coord(f.Width(text).Points()))
	if turn := math.Atan2(c.state.m[1], c.state.m[0]); turn != 0 {
		fmt.Fprintf(&c.buf, ` transform="rotate(%s %s %s)"`, coord(-turn*180/math.Pi), coord(x), coord(y))
	}
	fmt.Fprintf(&c.buf, ">%s</text>\n", html.EscapeString(text))
}

// DrawImage is not for figures of lines; it is an error of the figure.
func (c *svgCanvas) DrawImage(vg.Rectangle, image.Image) {
	c.err = errors.New("a figure cannot hold an image of pixels")
}
