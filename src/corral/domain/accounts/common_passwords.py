"""The commonest passwords, and the words that they are made of.

In lower case and without trivial endings: `password_policy` finds them also with digits, years and signs around them,
with capitals, and with digits in place of letters. So a few hundred words stand for many thousand passwords.
"""

from __future__ import annotations

from typing import Final

_WORDS: Final = """
password passwort passwd pass passphrase passcode passport motdepasse contrasena contraseña senha wachtwoord heslo parola
haslo parool salasana losenord lösenord adgangskode kennwort geheim secret secreto segredo mypassword thepassword
newpassword oldpassword yourpassword changeme changethis changeit letmein letmeinnow openup opensesame sesame
welcome welcomeback willkommen bienvenue bienvenido default standard temporary temp test tester testing testtest
test123 guest user username login logon logmein signin access account admin administrator adminadmin administrador root
rootroot toor superuser sysadmin system operator manager master masterkey supervisor owner server minecraft gameserver
gaming gamer games game player players corral cluster controller dashboard console daemon node lobby survival creative
bedwars skyblock steve herobrine notch creeper enderman diamond emerald valheim terraria factorio rust fortnite
roblox pokemon pikachu charizard zelda mario luigi nintendo playstation xbox halo warcraft starcraft diablo overwatch
counterstrike counter strike callofduty leagueoflegends league legends dota steam valve skyrim fallout doom quake
qwerty qwertz azerty asdf asdfgh zxcvbn qazwsx qwer asd zxc wasd abc abcd abc123 iloveyou iloveu ilove loveyou loveme
lovely love lover lovers amour amor teamo tequiero tiamo liebe schatz fuckyou fuckoff fuck shit asshole bitch bastard
whatever nothing something everything anything nobody somebody trustno trustme trust noone whoami hello hellohello
helloworld hello world hallo bonjour hola goodbye please thankyou thanks sorry welcome1 dontknow idontknow forgot forgotten
remember forever always never again today tomorrow yesterday monday tuesday wednesday thursday friday saturday sunday
january february march april may june july august september october november december spring summer autumn fall winter
sommer herbst fruhling frühling morning evening night midnight sunshine sunrise sunset sun moon star stars starlight
moonlight rainbow rain snow snowball storm thunder lightning fire flame ice water ocean sea river mountain forest flower
flowers rose roses lily daisy jasmine cherry apple orange banana lemon peach strawberry chocolate cookie cookies cheese
pizza coffee pepper ginger sugar candy honey butter peanut pumpkin potato tomato pineapple bacon whiskey vodka beer
monkey dragon tiger lion eagle falcon hawk wolf bear panda koala turtle dolphin shark whale horse pony unicorn phoenix
spider snake cobra viper scorpion butterfly kitty kitten cat cats pussycat dog dogs doggy puppy bulldog buster buddy
max rex bella charlie rocky shadow smokey tigger snoopy garfield mickey minnie donald pluto goofy bambi simba nemo
scooby scoobydoo batman superman spiderman ironman hulk wolverine deadpool joker robin avengers marvel starwars star wars
skywalker luke vader darthvader yoda jedi matrix neo trinity gandalf frodo bilbo aragorn legolas hobbit rings harry potter
harrypotter hogwarts hermione dumbledore voldemort hunter ranger warrior knight ninja samurai pirate wizard witch angel
devil demon satan god jesus christ jesuschrist heaven hell church bible faith hope grace peace blessed freedom liberty
justice victory winner champion champions hero legend king queen prince princess princesa boss chief captain general
soldier sniper killer assassin hacker cracker phantom ghost zombie vampire alien robot cyber matrix1 computer
internet google facebook instagram twitter youtube yahoo gmail hotmail outlook microsoft windows linux ubuntu debian
apple1 android samsung nokia iphone laptop keyboard mouse monitor printer network wireless wifi router modem security
secure database mysql postgres oracle cisco docker kubernetes backup service support helpdesk office company business
money dollar euro million millionaire rich gold golden silver platinum bitcoin crypto wallet bank trading
football soccer baseball basketball hockey tennis golf rugby cricket volleyball swimming running fitness racing formula
ferrari porsche mercedes mustang corvette camaro bmw audi toyota honda yamaha suzuki kawasaki harley davidson
harleydavidson chevrolet chevy jaguar lamborghini tesla volkswagen golfgti subaru nissan
liverpool arsenal chelsea manchester manchesterunited united everton tottenham barcelona realmadrid madrid juventus
milan inter internazionale roma napoli bayern bayernmunchen borussia dortmund schalke hamburg werder ajax feyenoord
benfica sporting porto galatasaray fenerbahce besiktas celtic rangers yankees redsox lakers celtics bulls cowboys
steelers packers patriots raiders broncos eagles giants dodgers cubs
london paris berlin munich vienna rome newyork brooklyn california texas florida chicago boston hawaii america american
england english germany deutschland france spain espana italy italia russia brazil brasil canada australia india
china japan tokyo europe africa mexico portugal poland polska netherlands holland sweden norway denmark finland turkey
michael jordan jennifer jessica ashley amanda daniel matthew andrew joshua christopher nicholas anthony william robert
thomas james john david richard charles joseph george edward brian kevin steven mark paul peter alex alexander alexandra
alexis sandra andrea nicole natalie stephanie michelle melissa samantha elizabeth victoria rebecca rachel hannah sarah
laura julia julie maria marie anna emma sophia sophie olivia isabella lucas oliver martin stefan thomas1 sebastian
benjamin jonathan patrick vincent gabriel samuel simon felix florian tobias christian christina kristina katharina
patricia veronica monica angela claudia carlos juan jose antonio francisco fernando eduardo ricardo roberto diego pedro
mohamed mohammed ahmed ali fatima yusuf ivan dmitri sergey natasha olga tatiana svetlana nikita andrey
family mother father mommy daddy mama papa brother sister baby babygirl babyboy girl girls boy boys friend friends
bestfriend boyfriend girlfriend husband wife children little bigdaddy sweet sweetheart sweetie cutie beautiful pretty
gorgeous sexy hottie hot cool awesome amazing perfect super special happy happiness smile smiling funny crazy lucky
forever1 young wild free party dance dancing music guitar piano drums rock rockstar metal metallica nirvana beatles
eminem slipknot linkinpark greenday blink queen1 elvis hiphop techno trance singer song movie movies hollywood
school college university student teacher doctor nurse engineer science physics history english1 spanish mathematics
black white red blue green yellow purple pink brown grey gray violet scarlet crimson turquoise indigo magenta
one two three four five six seven eight nine ten zero first second third hundred thousand number numbers
blink182 michelle1 ncc1701 thx1138 rush2112 bond007 jamesbond agent agent007 area51 route66 catch22 red123 pass123
word words letters correct horse battery staple correcthorsebatterystaple correcthorse batterystaple
thisisapassword thisismypassword mypasswordis passwordpassword iforgotmypassword nopassword nopasswd notapassword
strongpassword verysecure supersecret topsecret veryverysecret secretpassword securepassword mysecret keepout
donotenter unknown undefined example sample demo demodemo foobar foo bar baz lorem ipsum loremipsum
trustno1 ihateyou iamthebest iamgod imtheboss justdoit carpediem hakunamatata bismillah inshallah allah krishna
ganesh shiva buddha namaste
"""

WALKS: Final = (
    "1234567890",
    "!@#$%^&*()",
    '!"§$%&/()=',
    "qwertyuiop[]",
    "qwertzuiopü+",
    "azertyuiop",
    "asdfghjkl;'",
    "asdfghjklöä#",
    "qsdfghjklm",
    "zxcvbnm,./",
    "yxcvbnm,.-",
    "wxcvbn",
    "qazwsxedcrfvtgbyhnujmikolp",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
    "1q2w3e4r5t6y7u8i9o0p",
    "q1w2e3r4t5y6u7i8o9p0",
    "a1s2d3f4g5h6j7k8l9",
    "147258369",
    "741852963",
    "789456123",
    "abcdefghijklmnopqrstuvwxyz",
    "aabbccddeeffgghhiijjkkll",
    "112233445566778899",
    "1234567891011121314151617181920",
)
"""Keys in the order in which fingers find them. Typed forwards or backwards, from anywhere to anywhere."""

WORDS: Final = frozenset(_WORDS.split())
