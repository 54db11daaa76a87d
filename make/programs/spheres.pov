// A few reflecting spheres: every thread renders blocks of one image.
camera { location <0, 2, -6> look_at <0, 1, 0> }
light_source { <5, 8, -6> rgb 1 }
plane { y, 0 pigment { checker rgb 1, rgb 0.2 } finish { reflection 0.2 } }
#declare I = -2;
#while (I <= 2)
  sphere { <I * 1.2, 1, I * I * 0.3>, 0.6 pigment { rgb <0.2 + I * I * 0.2, 0.5, 0.8> } finish { reflection 0.4 } }
  #declare I = I + 1;
#end
